#include "launch/restarts/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Attempts of a job, one after the other.
class RestartPolicyTest : public ::testing::Test {
 protected:
  // One that lived for so long and got to `step`, where it told of any.
  RestartDecision after(Duration life, std::optional<double> step = {}) {
    Attempt attempt{.began = now_, .failed = now_ + life, .reason = "", .steps = {}};
    if (step) attempt.steps.see(*step, now_);
    const RestartDecision decision = policy_.after(attempt);
    now_ = *attempt.failed + decision.delay.value_or(Duration(0));
    return decision;
  }

  TimePoint now_{};
  RestartPolicy policy_{{.most = 100, .window = std::nullopt}};
};

TEST_F(RestartPolicyTest, TheFirstRestartIsAtOnce) {
  EXPECT_EQ(after(milliseconds(1)).delay, seconds(0));
}

TEST_F(RestartPolicyTest, WaitsLongerForEachAttemptWithoutProgress) {
  for (const int wait : {0, 1, 2, 4, 8, 16, 30, 30}) {
    EXPECT_EQ(after(seconds(6)).delay, seconds(wait)) << "no steps, but no short life either";
  }
}

TEST_F(RestartPolicyTest, AnAttemptThatGotFurtherStartsTheWaitsAnew) {
  EXPECT_EQ(after(seconds(1), 10).delay, seconds(0));
  EXPECT_EQ(after(seconds(1), 10).delay, seconds(1));
  EXPECT_EQ(after(seconds(1), 9).delay, seconds(2));
  EXPECT_EQ(after(seconds(1), 11).delay, seconds(0));
  EXPECT_EQ(after(seconds(1), 11).delay, seconds(1));
}

TEST_F(RestartPolicyTest, GivesUpWhatDiesAtTheSameStep) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(after(seconds(100), 57).delay);
  const RestartDecision decision = after(seconds(100), 56);
  EXPECT_FALSE(decision.delay);
  EXPECT_EQ(decision.why_not, "it died 4 times at the same place: no attempt got beyond step 57");
}

TEST_F(RestartPolicyTest, GivesUpWhatDiesAtItsStart) {
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(after(milliseconds(4900)).delay);
  EXPECT_EQ(after(milliseconds(4900)).why_not,
            "it died 3 times at the same place: within 5 s of its start");
}

TEST_F(RestartPolicyTest, AnAttemptWithoutStepsGotNoFurtherHoweverLongItLived) {
  EXPECT_TRUE(after(seconds(9), 100).delay);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(after(seconds(900)).delay);
  EXPECT_THAT(after(seconds(900), 0).why_not,
              HasSubstr("died 3 times at the same place: before its first step"));
}

TEST_F(RestartPolicyTest, ALongLifeIsNotTheSamePlace) {
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(after(seconds(1)).delay);
    EXPECT_TRUE(after(seconds(1)).delay);
    EXPECT_TRUE(after(seconds(5)).delay);
  }
}

TEST_F(RestartPolicyTest, TheBudgetIsOfTheWholeJob) {
  policy_ = RestartPolicy({.most = 2, .window = std::nullopt});
  for (int i = 1; i <= 2; ++i) EXPECT_TRUE(after(std::chrono::hours(100), i).delay);
  EXPECT_EQ(after(seconds(1), 9).why_not, "all 2 restarts are used");
  EXPECT_EQ(policy_.attempt_text(1), "attempt 2 of 3");
}

TEST_F(RestartPolicyTest, OrOfAWindow) {
  policy_ = RestartPolicy({.most = 2, .window = seconds(60)});
  for (int i = 1; i <= 10; ++i) EXPECT_TRUE(after(seconds(30), i).delay) << i;
  EXPECT_EQ(after(seconds(29), 11).why_not, "all 2 restarts are used (--restart_window 60 s)");
  EXPECT_EQ(policy_.attempt_text(1), "attempt 2 (at most 2 restarts within 60 s)");
}

}  // namespace
}  // namespace fleet::launch
