// Which of a machine's addresses others are told, in a network of the test's own.
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"
#include "transport/mpi_session/mpi_session.h"

namespace fleet::transport {
namespace {

// The address in a network that the shell's commands make; "" when the kernel gives none.
std::string address_with(const std::string& commands) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const std::string user = str_cat("0 ", geteuid(), " 1");
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(1);
    std::ofstream("/proc/self/uid_map") << user << std::flush;
    if (std::system(commands.c_str()) != 0) _exit(1);
    const std::string address = machine_address();
    _exit(write(ends[1], address.data(), address.size()) > 0 ? 0 : 1);
  }
  close(ends[1]);
  std::string text(64, '\0');
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

TEST(MachineAddress, IsThatOfTheDefaultRoute) {
  const std::string bridge = interface("docker0", "172.17.0.1/16");
  const std::string alone = address_with(bridge);
  if (alone.empty()) GTEST_SKIP() << "this kernel gives no network to play with (unshare, ip)";
  EXPECT_EQ(alone, "172.17.0.1");
  const std::string both = str_cat(bridge, " && ", interface("eth0", "10.1.2.3/24"));
  EXPECT_EQ(address_with(str_cat(both, " && ip route add default via 10.1.2.1 dev eth0")),
            "10.1.2.3");
  EXPECT_EQ(address_with("true"), "127.0.0.1");
}

}  // namespace
}  // namespace fleet::transport
