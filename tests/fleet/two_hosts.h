// Two hosts on this machine: network namespaces with a link between them. They need root and the
// program ip.
#pragma once

#include <string>
#include <unistd.h>

#include "base/strings.h"
#include "tests/testing/command.h"

namespace fleet::testing {

class TwoHosts {
 public:
  // With addresses of IPv4, or of IPv6 only.
  explicit TwoHosts(bool ipv6 = false) : ipv6_(ipv6) {
    const auto made =
        run_command(str_cat("set -e; ip netns add ", space(0), "; ip netns add ", space(1),
                            "; ip link add ", link(0), " netns ", space(0), " type veth peer name ",
                            link(1), " netns ", space(1), "; ", bring_up(0), bring_up(1)),
                    20);
    if (made.code != 0) problem_ = str_cat("no network namespaces here: ", made.output);
  }
  ~TwoHosts() { run_command(str_cat("ip netns del ", space(0), "; ip netns del ", space(1)), 20); }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  // Why there are none; empty if there are.
  const std::string& problem() const { return problem_; }
  std::string address(int host) const {
    return str_cat(ipv6_ ? "fd00:f1ee:7::" : "10.213.77.", host + 1);
  }
  static std::string link(int host) { return str_cat("ft", getpid(), "h", host); }
  // What stands before a command that runs there.
  static std::string on(int host) { return str_cat("ip netns exec ", space(host), " "); }

 private:
  static std::string space(int host) { return str_cat("fleet-test-", getpid(), "-", host); }
  std::string bring_up(int host) const {
    const std::string in = str_cat("ip -n ", space(host), " ");
    return str_cat(in, "addr add ", address(host), ipv6_ ? "/64" : "/24", " dev ", link(host),
                   ipv6_ ? " nodad; " : "; ", in, "link set ", link(host), " up; ", in,
                   "link set lo up; ");
  }

  bool ipv6_;
  std::string problem_;
};

}  // namespace fleet::testing
