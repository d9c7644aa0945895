// When workers save: the same decision in all of them.
#include "fleet/checkpoints/save_times.h"

#include <gtest/gtest.h>
#include <optional>
#include <vector>

namespace fleet {
namespace {

// Workers of one process, asked one after the other: what each gives to a sum is known before.
class Workers final : public strategies::StrategyRuntime {
 public:
  void init_worker() override {}
  void stop_worker() override {}
  void barrier_worker() override {}
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return {values.begin(), values.end()};
  }
  std::vector<double> all_reduce_training(std::span<const double> values) override {
    ++sums;
    std::vector<double> all(values.begin(), values.end());
    all[0] += others_want;
    return all;
  }
  bool in_step() const override { return steps_agree; }
  void ask_to_save() override { ++asked; }
  uint64_t saves_asked() const override { return told; }
  fluid::StepShards shards() const override { return {}; }
  void begin_step(const fluid::Program&, uint64_t) override {}
  void end_step(const fluid::Program&, uint64_t) override {}
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall&) override { return nullptr; }

  bool steps_agree = true;
  double others_want = 0;
  int sums = 0;
  int asked = 0;
  uint64_t told = 0;
};

TEST(SaveTimes, InStepCountsSteps) {
  Workers workers;
  SaveTimes times(workers, true, {.every_steps = 4}, 6);
  std::vector<int64_t> saved;
  for (int64_t step = 7; step <= 16; ++step) {
    if (!times.after_step(step, false)) continue;
    saved.push_back(step);
    times.saved(step, 0);
  }
  EXPECT_EQ(saved, (std::vector<int64_t>{8, 12, 16}));
}

// A run of a program may be several steps.
TEST(SaveTimes, InStepMissesNoPeriod) {
  Workers workers;
  SaveTimes times(workers, true, {.every_steps = 10, .asked = false}, 0);
  std::vector<int64_t> saved;
  for (int64_t step = 3; step <= 33; step += 3) {
    if (!times.after_step(step, false)) continue;
    saved.push_back(step);
    times.saved(step, 0);
  }
  EXPECT_EQ(saved, (std::vector<int64_t>{12, 21, 30}));
  EXPECT_EQ(workers.sums, 0) << "nobody can be told to";
}

// Short steps are not all asked about.
TEST(SaveTimes, InStepAsksTheOthersSeldom) {
  Workers workers;
  SaveTimes times(workers, true, {}, 0);
  for (int64_t step = 1; step <= 5000; ++step) EXPECT_FALSE(times.after_step(step, false));
  EXPECT_LT(workers.sums, 20);
}

TEST(SaveTimes, InStepOneThatWantsToIsEnough) {
  Workers workers;
  SaveTimes times(workers, false, {}, 0);
  EXPECT_FALSE(times.after_step(1, false));
  workers.others_want = 1;
  int64_t step = 2;
  while (!times.after_step(step, false)) ASSERT_LT(++step, 10000);
  workers.others_want = 0;
  times.saved(step, 0);
  while (!times.after_step(++step, true)) ASSERT_LT(step, 20000);
}

TEST(SaveTimes, OutOfStepOneAsksAndAllAreTold) {
  Workers workers;
  workers.steps_agree = false;
  SaveTimes times(workers, true, {.every_steps = 4}, 0);
  for (int64_t step = 1; step <= 3; ++step) EXPECT_FALSE(times.after_step(step, false));
  EXPECT_EQ(workers.asked, 0);
  EXPECT_FALSE(times.after_step(4, false)) << "not before it is told";
  EXPECT_FALSE(times.after_step(5, false));
  EXPECT_EQ(workers.asked, 1);
  workers.told = 1;
  EXPECT_TRUE(times.after_step(6, false));
  times.saved(9, 2);  // another is ahead, and has asked once more
  workers.told = 2;
  EXPECT_FALSE(times.after_step(7, false));
  EXPECT_FALSE(times.after_step(11, false));
  EXPECT_EQ(workers.asked, 1) << "the period of step 8 has been saved";
  EXPECT_FALSE(times.after_step(12, false));
  EXPECT_EQ(workers.asked, 2);
  workers.told = 3;
  EXPECT_TRUE(times.after_step(13, false));
  times.saved(13, 3);
  EXPECT_FALSE(times.after_step(14, true));
  EXPECT_EQ(workers.asked, 3) << "a signal";
  EXPECT_EQ(workers.sums, 0);
}

}  // namespace
}  // namespace fleet
