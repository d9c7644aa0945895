// A worker that does something else for long, a job of real processes around it.
#include <cstdlib>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

// Worker 0 evaluates for `seconds` between two steps; the others wait for it where the strategy has
// them wait.
void expect_survives(const std::string& strategy, int seconds) {
  const std::string logs = ::testing::TempDir() + "evaluation-logs";
  const auto result = run_command(
      str_cat(binary_path("bin/launch_ps"), " --worker_num 2 --server_num 2 --tee --log_dir ", logs,
              " ", binary_path("bin/facade_worker"), " --strategy ", strategy,
              " --steps 12 --evaluate_s ", seconds),
      seconds + 60);
  EXPECT_EQ(result.code, 0) << strategy << "\n" << result.output;
}

class Evaluation : public ::testing::TestWithParam<const char*> {};

// Longer than every deadline but stall_deadline, all of them shortened.
TEST_P(Evaluation, LongerThanTheDeadlinesKillsNothing) {
  setenv("FLAGS_rpc_deadline", "1000", 1);
  setenv("FLEET_HEARTBEAT_INTERVAL_MS", "200", 1);
  setenv("FLEET_HEARTBEAT_TIMEOUT_MS", "1500", 1);
  expect_survives(GetParam(), 4);
  unsetenv("FLAGS_rpc_deadline");
  unsetenv("FLEET_HEARTBEAT_INTERVAL_MS");
  unsetenv("FLEET_HEARTBEAT_TIMEOUT_MS");
}

INSTANTIATE_TEST_SUITE_P(All, Evaluation, ::testing::Values("sync", "ssp", "half_async", "geo"),
                         [](const auto& test) { return std::string(test.param); });

// With the deadlines that jobs have; CTest's long_evaluation, of the label faults_full, asks for
// it.
class LongEvaluation : public ::testing::TestWithParam<int> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LongEvaluation);

TEST_P(LongEvaluation, KillsNothing) {
  expect_survives("sync", GetParam());
}

std::vector<int> long_evaluations() {
  const char* seconds = std::getenv("FLEET_LONG_EVALUATION");
  return seconds == nullptr ? std::vector<int>() : std::vector<int>{std::atoi(seconds)};
}
INSTANTIATE_TEST_SUITE_P(All, LongEvaluation, ::testing::ValuesIn(long_evaluations()));

}  // namespace
}  // namespace fleet::testing
