#include "strategies/collective/local_sgd_schedule.h"

#include <gmock/gmock.h>
#include <vector>

#include "base/error.h"

namespace fleet::strategies {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Steps after which the workers average, counted from 1.
std::vector<int> averages(LocalSgdSchedule& schedule, int steps, double loss = 1) {
  std::vector<int> found;
  for (int step = 1; step <= steps; ++step) {
    if (!schedule.step(loss)) continue;
    found.push_back(step);
    schedule.averaged(schedule.local_loss(), 0.1);
  }
  return found;
}

// Runs to the next average and tells it that the mean loss is `loss`.
int next_interval(LocalSgdSchedule& schedule, double loss, double learning_rate = 0.1) {
  int steps = 1;
  while (!schedule.step(loss)) ++steps;
  schedule.averaged(loss, learning_rate);
  return steps;
}

TEST(LocalSgdScheduleTest, AConstantIntervalAveragesAfterSoManySteps) {
  LocalSgdSchedule schedule({.interval = 4});
  EXPECT_THAT(averages(schedule, 13), ElementsAre(4, 8, 12));
  EXPECT_EQ(schedule.averages(), 3);
  LocalSgdSchedule every({.interval = 1});
  EXPECT_THAT(averages(every, 3), ElementsAre(1, 2, 3));
}

TEST(LocalSgdScheduleTest, PostLocalAveragesEveryStepUntilItsStart) {
  LocalSgdSchedule schedule({.interval = 3, .start_step = 4});
  EXPECT_EQ(schedule.interval(), 1);
  EXPECT_THAT(averages(schedule, 11), ElementsAre(1, 2, 3, 4, 7, 10));
  EXPECT_EQ(schedule.interval(), 3);
}

TEST(LocalSgdScheduleTest, AdaCommFollowsTheRootOfTheLossOutsideOfTau0) {
  LocalSgdSchedule schedule(
      {.interval = 16, .rule = LocalSgdRule::kAdaComm, .adapt_every = 1, .shrink = 0.5});
  EXPECT_EQ(next_interval(schedule, 4.0), 16);  // F_0
  EXPECT_EQ(next_interval(schedule, 1.0), 16);  // ceil(16 sqrt(1 / 4)) = 8
  EXPECT_EQ(next_interval(schedule, 0.64), 8);  // ceil(16 * 0.4) = 7
  EXPECT_EQ(next_interval(schedule, 0.64), 7);  // 7 again: it does not shrink, so ceil(3.5) = 4
  EXPECT_EQ(next_interval(schedule, 100.), 4);  // 80 does not shrink either: 2
  EXPECT_EQ(schedule.interval(), 2);
}

TEST(LocalSgdScheduleTest, ALowerLearningRateLengthensTheInterval) {
  const LocalSgdOptions with{
      .interval = 4, .rule = LocalSgdRule::kAdaComm, .adapt_every = 1, .shrink = 1.0};
  LocalSgdSchedule schedule(with);
  next_interval(schedule, 1.0, 0.4);
  next_interval(schedule, 0.04, 0.1);  // sqrt(4 * 0.04) = 0.4: ceil(1.6) = 2
  EXPECT_EQ(schedule.interval(), 2);
  LocalSgdOptions without = with;
  without.with_learning_rate = false;
  LocalSgdSchedule other(without);
  next_interval(other, 1.0, 0.4);
  next_interval(other, 0.04, 0.1);  // sqrt(0.04) = 0.2: ceil(0.8) = 1
  EXPECT_EQ(other.interval(), 1);
}

TEST(LocalSgdScheduleTest, DecisionsLookAtTheMeanLossSinceTheLastOne) {
  LocalSgdSchedule schedule(
      {.interval = 2, .rule = LocalSgdRule::kAdaComm, .adapt_every = 4, .shrink = 1.0});
  schedule.step(1);
  EXPECT_TRUE(schedule.step(3));
  EXPECT_EQ(schedule.local_loss(), 2);
  schedule.averaged(2, 0.1);
  for (const double loss : {0.1, 0.2}) schedule.step(loss);
  schedule.averaged(schedule.local_loss(), 0.1);  // too early to decide
  EXPECT_EQ(schedule.interval(), 2);
  for (const double loss : {0.3, 0.4}) schedule.step(loss);
  EXPECT_DOUBLE_EQ(schedule.local_loss(), 0.25);
  schedule.averaged(schedule.local_loss(), 0.1);  // ceil(2 sqrt(0.125)) = 1
  EXPECT_EQ(schedule.interval(), 1);
}

TEST(LocalSgdScheduleTest, PaddlesRuleHasTheIntervalInsideOfTheRootAndStaysWithin16) {
  LocalSgdSchedule schedule(LocalSgdOptions::paddle(16));
  EXPECT_EQ(next_interval(schedule, 1.0), 16);        // ceil(sqrt(16)) = 4
  EXPECT_EQ(next_interval(schedule, 0.25), 4);        // ceil(sqrt(4)) = 2
  EXPECT_EQ(next_interval(schedule, 0.01), 2);        // ceil(sqrt(0.16)) = 1
  EXPECT_EQ(next_interval(schedule, 100.), 1);        // ceil(sqrt(1600)) = 40, at most 16
  EXPECT_EQ(next_interval(schedule, 1.0, 0.05), 16);  // ceil(sqrt(32)) = 6
  EXPECT_EQ(schedule.interval(), 6);
}

TEST(LocalSgdScheduleTest, ALossThatIsNoNumberChangesNothing) {
  LocalSgdSchedule schedule({.interval = 8, .rule = LocalSgdRule::kAdaComm, .adapt_every = 1});
  next_interval(schedule, 1.0);
  next_interval(schedule, std::nan(""));
  EXPECT_EQ(schedule.interval(), 8);
}

TEST(LocalSgdScheduleTest, WrongOptionsAreRefusedByName) {
  const auto message = [](const LocalSgdOptions& options) -> std::string {
    try {
      validate(options);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({.interval = 0}), HasSubstr("interval"));
  EXPECT_THAT(message({.start_step = -1}), HasSubstr("start_step"));
  EXPECT_THAT(message({.adapt_every = 0}), HasSubstr("adapt_every"));
  EXPECT_THAT(message({.shrink = 0}), HasSubstr("shrink"));
  EXPECT_THAT(message({.min_interval = 5, .max_interval = 4}), HasSubstr("max_interval"));
  EXPECT_THAT(message({.interval = 20, .rule = LocalSgdRule::kAdaComm, .max_interval = 16}),
              HasSubstr("between 1 and 16"));
}

}  // namespace
}  // namespace fleet::strategies
