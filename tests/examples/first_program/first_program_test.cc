// The README's first program: alone, with servers, and with ranks.

#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The loss that a run prints at its end; a launcher repeats its first worker's last line.
double last_loss(const std::string& command) {
  const auto result = run_command(command, 60);
  EXPECT_EQ(result.code, 0) << command << "\n" << result.output;
  constexpr std::string_view kText = "loss after 200 steps: ";
  const size_t at = result.output.find(kText);
  if (at == std::string::npos) {
    ADD_FAILURE() << command << " printed no loss:\n" << result.output;
    return 1;
  }
  return std::strtod(result.output.c_str() + at + kText.size(), nullptr);
}

class FirstProgram : public QuickStart {
 protected:
  std::string under(const std::string& launcher) const {
    return str_cat(kBin, launcher, " --log_dir ", path("logs"), " ", kBin, "first_program");
  }
};

TEST_F(FirstProgram, LearnsInEveryMode) {
  const double alone = last_loss(kBin + "first_program_local");
  EXPECT_GT(alone, 0);
  EXPECT_LT(alone, 1e-3);
  EXPECT_EQ(last_loss(kBin + "first_program"), alone);
  EXPECT_LT(last_loss(under("launch_ps --worker_num 2 --server_num 2")), 1e-3) << logs();
  EXPECT_LT(last_loss(under("launch --nproc_per_node 2")), 1e-3) << logs();
}

TEST_F(FirstProgram, LearnsOverIpv6) {
  std::ifstream addresses("/proc/net/if_inet6");
  const std::string listed(std::istreambuf_iterator<char>(addresses), {});
  if (listed.find("00000000000000000000000000000001 ") == std::string::npos) {
    GTEST_SKIP() << "this machine has no ::1";
  }
  const std::string options =
      "launch_ps --worker_num 2 --server_num 2 --print_config --node_ip ::1";
  const std::string command = "FLEET_TRANSPORT=tcp " + under(options);
  EXPECT_LT(last_loss(command), 1e-3) << logs();
  EXPECT_THAT(run_command(command, 60).output,
              AllOf(HasSubstr("PADDLE_PSERVERS_IP_PORT_LIST=[::1]:"), HasSubstr("POD_IP=::1 ")));
}

}  // namespace
}  // namespace fleet::testing
