#include "benchmarks/shaped_network.h"

#include <chrono>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"

namespace fleet::benchmarks {
namespace {

int shell(const std::string& script) {
  return run_process({"/bin/sh", "-c", script}).exit_code;
}

}  // namespace

ShapedNetwork::ShapedNetwork(int megabits)
    : first_(str_cat("fleet", getpid(), "a")), second_(str_cat("fleet", getpid(), "b")) {
  const std::string a = str_cat("fl", getpid(), "a");
  const std::string b = str_cat("fl", getpid(), "b");
  const auto host = [megabits](const std::string& space, const std::string& link,
                               const char* address) {
    return str_cat("ip -n ", space, " addr add ", address, "/24 dev ", link, "; ip -n ", space,
                   " link set ", link, " up; ip -n ", space, " link set lo up; tc -n ", space,
                   " qdisc add dev ", link, " root tbf rate ", megabits,
                   "mbit burst 128kb latency 200ms; ");
  };
  const int code = shell(str_cat("exec 2>&1; set -e; ip netns add ", first_, "; ip netns add ",
                                 second_, "; ip link add ", a, " netns ", first_,
                                 " type veth peer name ", b, " netns ", second_, "; ",
                                 host(first_, a, kFirstAddress), host(second_, b, kSecondAddress)));
  if (code == 0) return;
  remove();
  throw_error(ErrorCode::kInput, {.what = "no network namespaces with a shaped link between them",
                                  .fix = "run as root, with ip and tc installed"});
}

ShapedNetwork::~ShapedNetwork() {
  remove();
}

void ShapedNetwork::remove() const {
  shell(str_cat("ip netns del ", first_, " 2>/dev/null; ip netns del ", second_, " 2>/dev/null"));
}

TrafficSample sample_traffic(int process) {
  TrafficSample sample;
  sample.at =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  std::ifstream schedule(str_cat("/proc/", process, "/schedstat"));
  schedule >> sample.cpu_ns;
  std::ifstream devices(str_cat("/proc/", process, "/net/dev"));
  for (std::string line; std::getline(devices, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || line.find("lo:") != std::string::npos) continue;
    std::istringstream fields(line.substr(colon + 1));
    uint64_t field = 0;
    for (int i = 0; i < 9 && fields >> field; ++i) {
      if (i == 0) sample.received += field;
      if (i == 8) sample.sent += field;
    }
  }
  return sample;
}

}  // namespace fleet::benchmarks
