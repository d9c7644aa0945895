#include "launch/restarts/attempt_history.h"

#include <gtest/gtest.h>

namespace fleet::launch {
namespace {

using std::chrono::seconds;

class AttemptHistoryTest : public ::testing::Test {
 protected:
  TimePoint at(int second) const { return start_ + seconds(second); }
  StepsSeen steps(double first, double highest, int second) const {
    StepsSeen seen;
    seen.see(first, at(second));
    seen.see(highest, at(second + 1));
    return seen;
  }

  TimePoint start_ = steady_clock().now();
  AttemptHistory history_{start_};
};

TEST_F(AttemptHistoryTest, TheFirstAttemptIsNoRestart) {
  EXPECT_EQ(history_.restarts(), 0);
  EXPECT_TRUE(history_.list({}, at(9)).empty());
}

TEST_F(AttemptHistoryTest, AStepThatIsToldEndsTheLossAndSaysWhatIsRepeated) {
  history_.fail(at(10), "one", steps(1, 100, 2));
  history_.begin(at(12));
  EXPECT_EQ(history_.list({}, at(13)).at(0).lost, seconds(3)) << "so far";
  EXPECT_FALSE(history_.list({}, at(13)).at(0).steps_repeated);
  history_.fail(at(20), "two", steps(81, 90, 15));
  history_.begin(at(21));
  const auto all = history_.list(steps(91, 95, 24), at(30));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].reason, "one");
  EXPECT_EQ(all[0].failed, at(10));
  EXPECT_EQ(all[0].lost, seconds(5));
  EXPECT_EQ(all[0].steps_repeated, 20);
  EXPECT_EQ(all[1].lost, seconds(4));
  EXPECT_EQ(all[1].steps_repeated, 0);
  EXPECT_EQ(sum_of(all).lost, seconds(9));
  EXPECT_EQ(sum_of(all).steps_repeated, 20);
}

TEST_F(AttemptHistoryTest, AnAttemptThatFailsBeforeItsFirstStepIsLostAsAWhole) {
  history_.fail(at(10), "one", steps(1, 100, 2));
  history_.begin(at(12));
  history_.fail(at(17), "two", {});
  history_.begin(at(18));
  const auto all = history_.list(steps(81, 85, 20), at(30));
  EXPECT_EQ(all[0].lost, seconds(7));
  EXPECT_FALSE(all[0].steps_repeated);
  EXPECT_EQ(all[1].lost, seconds(3));
  EXPECT_EQ(all[1].steps_repeated, 20) << "of the last attempt that did any";
}

TEST_F(AttemptHistoryTest, AJobThatTellsOfNoStepsLosesTheTimeWithoutProcesses) {
  history_.fail(at(10), "one", {});
  history_.begin(at(12));
  EXPECT_EQ(history_.list({}, at(100)).at(0).lost, seconds(2));
}

}  // namespace
}  // namespace fleet::launch
