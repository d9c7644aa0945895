// A run that diverges says so, and by the policy ends, under every launcher and in every mode.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTooFast = " --learning_rate 1e30 --steps 400";
// Who found what, and when.
constexpr const char* kFound =
    "(worker|server) [0-9]+: (the loss|parameter) '[^']+' is (nan|inf|-inf) at step [0-9]+";

class Nonfinite : public QuickStart {
 protected:
  std::string launched(const std::string& options, const std::string& job,
                       const std::string& flags = "") const {
    const size_t end = job.find(' ');
    return job.substr(0, end) + options + job.substr(end) + kTooFast + flags;
  }
  // Every process that found something wrote one line of it, as the first one.
  void expect_told(const std::string& level) const {
    EXPECT_THAT(logs(), ContainsRegex(level + " (worker|server)/[0-9]+ nonfinite"));
  }
  void expect_stop(const std::string& job, const std::string& flags = "") {
    const auto result = run_command(launched("", job, flags), 60);
    EXPECT_EQ(result.code, 1) << result.output;
    EXPECT_THAT(result.output,
                AllOf(ContainsRegex(kFound), HasSubstr("lower the learning rate"),
                      HasSubstr("FLAGS_check_nan_inf"), Not(HasSubstr("ended well"))))
        << logs();
    expect_told("error");
  }
  void expect_warning(const std::string& job, const std::string& flags = "") {
    const auto result = run_command(launched(" --on_nonfinite warn --progress", job, flags), 60);
    EXPECT_EQ(result.code, 0) << result.output << logs();
    EXPECT_THAT(result.output,
                AllOf(HasSubstr("not finite: "), ContainsRegex(kFound), HasSubstr("ended, but not"),
                      HasSubstr("NOT FINITE: "), Not(HasSubstr("ended well"))));
    expect_told("warning");
  }
};

class NonfiniteWithServers : public Nonfinite, public ::testing::WithParamInterface<const char*> {};

TEST_P(NonfiniteWithServers, EndsTheJob) {
  expect_stop(servers(2, 2), std::string(" --strategy ") + GetParam());
}

TEST_P(NonfiniteWithServers, OrIsAWarning) {
  expect_warning(servers(2, 2), std::string(" --strategy ") + GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, NonfiniteWithServers,
                         ::testing::Values("sync", "async", "half_async", "dc_asgd", "geo"),
                         [](const auto& test) { return std::string(test.param); });

TEST_F(Nonfinite, EndsACollectiveJob) {
  expect_stop(collective(2));
}

TEST_F(Nonfinite, IsAWarningInACollectiveJob) {
  expect_warning(collective(2));
}

TEST_F(Nonfinite, EndsALocalSgdJob) {
  expect_stop(collective(2), " --strategy local_sgd");
}

TEST_F(Nonfinite, EndsAProcessAlone) {
  const auto result = run_command(trainer() + kTooFast, 60);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.output, AllOf(HasSubstr("error worker/0 nonfinite"), HasSubstr("step=")));
}

TEST_F(Nonfinite, IsAWarningInAProcessAlone) {
  const auto result = run_command("FLEET_ON_NONFINITE=warn " + trainer() + kTooFast, 60);
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("warning worker/0 nonfinite"));
}

TEST_F(Nonfinite, AWrongPolicyIsNamed) {
  const auto variable = run_command("FLEET_ON_NONFINITE=halt " + trainer(), 60);
  EXPECT_EQ(variable.code, 2);
  EXPECT_THAT(variable.output, AllOf(HasSubstr("FLEET_ON_NONFINITE"), HasSubstr("stop or warn")));
  const auto option = run_command(launched(" --on_nonfinite halt", servers(1, 1)), 60);
  EXPECT_EQ(option.code, 2);
  EXPECT_THAT(option.output, AllOf(HasSubstr("--on_nonfinite"), HasSubstr("stop or warn")));
}

}  // namespace
}  // namespace fleet::testing
