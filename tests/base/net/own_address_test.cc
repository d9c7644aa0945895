// Which of a machine's addresses others are told, in a network of the test's own.
#include "base/net/own_address.h"

#include <cstdlib>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"

namespace fleet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What `ask` says in a network that the shell's commands make, or its error; "" when the kernel
// gives none.
std::string answer_with(const std::string& commands, const std::function<std::string()>& ask) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const std::string user = str_cat("0 ", geteuid(), " 1");
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(1);
    std::ofstream("/proc/self/uid_map") << user << std::flush;
    if (std::system(commands.c_str()) != 0) _exit(1);
    std::string address;
    try {
      address = ask();
    } catch (const Error& error) {
      address = error.what();
    }
    _exit(write(ends[1], address.data(), address.size()) > 0 ? 0 : 1);
  }
  close(ends[1]);
  std::string text(4096, '\0');
  const ssize_t size = read(ends[0], text.data(), text.size());
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

std::string interface(const std::string& name, const std::string& address) {
  return str_cat("ip tuntap add ", name, " mode tap && ip addr add ", address, " dev ", name,
                 " && ip link set ", name, " up");
}

std::string address_with(const std::string& commands) {
  return answer_with(commands, [] { return machine_address(); });
}

bool has_networks() {
  return !address_with("true").empty();
}
constexpr const char* kNoNetworks = "this kernel gives no network to play with (unshare, ip)";

TEST(MachineAddress, IsThatOfTheDefaultRoute) {
  if (!has_networks()) GTEST_SKIP() << kNoNetworks;
  const std::string both =
      str_cat(interface("docker0", "172.17.0.1/16"), " && ", interface("eth0", "10.1.2.3/24"));
  EXPECT_EQ(address_with(str_cat(both, " && ip route add default via 10.1.2.1 dev eth0")),
            "10.1.2.3");
  EXPECT_EQ(address_with("true"), "127.0.0.1");
}

TEST(MachineAddress, IsNeverThatOfABridge) {
  if (!has_networks()) GTEST_SKIP() << kNoNetworks;
  const std::string bridge = interface("docker0", "172.17.0.1/16");
  EXPECT_EQ(address_with(bridge), "127.0.0.1");
  EXPECT_EQ(address_with(str_cat(bridge, " && ", interface("eth0", "10.1.2.3/24"))), "10.1.2.3");
}

TEST(OwnAddress, IsThatOfTheChosenInterface) {
  if (!has_networks()) GTEST_SKIP() << kNoNetworks;
  const std::string network =
      str_cat(interface("eth0", "10.1.2.3/24"), " && ", interface("ib0", "10.9.0.5/16"),
              " && ip addr add fd00::5/64 dev ib0 nodad");
  const auto asked = [&](const std::string& interfaces, const Endpoint& towards) {
    return answer_with(network, [&] { return own_address_towards(towards, interfaces); });
  };
  EXPECT_EQ(asked("", {"10.1.2.9", 80}), "10.1.2.3");
  EXPECT_EQ(asked("ib0", {"10.1.2.9", 80}), "10.9.0.5");
  EXPECT_EQ(asked("ib0", {"fd00::9", 80}), "fd00::5");
  EXPECT_EQ(asked("ib1, ib0", {"10.1.2.9", 80}), "10.9.0.5");
  EXPECT_EQ(answer_with(network, [] { return machine_address("ib0"); }), "10.9.0.5");
  EXPECT_THAT(
      asked("ib7", {"10.1.2.9", 80}),
      AllOf(HasSubstr("FLEET_SOCKET_IFNAME"), HasSubstr("eth0 (10.1.2.3)"), HasSubstr("got: ib7")));
}

}  // namespace
}  // namespace fleet
