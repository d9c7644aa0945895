#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/paths.h"

#include "experiments/async_cluster.h"
#include "experiments/local_sgd_cluster.h"

namespace fleet::experiments {
namespace {

const ClassificationData& digits() {
  static const ClassificationData data =
      load_digits(fleet::testing::source_path("examples/data/digits"));
  return data;
}

TEST(Testbed, ReadsTheDigitsWithTheirFixedSplit) {
  EXPECT_EQ(digits().train_rows(), 1297);
  EXPECT_EQ(digits().test_y.numel(), 500);
  EXPECT_EQ(digits().width(), 64);
  EXPECT_EQ(digits().classes, 10);
}

TEST(Model, GradientAgreesWithDifferencesOfTheLoss) {
  Model model(digits(), {8});
  Weights weights = model.initial(3);
  ASSERT_EQ(weights.size(), 64u * 8 + 8 + 8 * 10 + 10);
  const std::vector<int64_t> rows = {5, 17, 900};
  Weights gradient(weights.size());
  Weights unused(weights.size());
  model.gradient(weights, rows, gradient);
  constexpr float kStep = 1e-2f;
  for (const size_t i : {10u, 300u, 515u, 560u, 605u}) {
    Weights moved = weights;
    moved[i] += kStep;
    const double above = model.gradient(moved, rows, unused);
    moved[i] -= 2 * kStep;
    const double below = model.gradient(moved, rows, unused);
    EXPECT_NEAR((above - below) / (2 * kStep), gradient[i], 2e-3) << i;
  }
}

TEST(AsyncCluster, EqualWorkersAreWorkersMinusOneUpdatesLate) {
  Model model(digits(), {8});
  for (const uint32_t workers : {1U, 4U, 8U}) {
    const AsyncOutcome outcome =
        run_async(model, digits(), {.workers = workers, .rate = 0.01, .gradients = 4000});
    EXPECT_NEAR(outcome.staleness.mean(), workers - 1, 0.02);
    EXPECT_EQ(outcome.staleness.max, workers - 1);
    EXPECT_EQ(outcome.gradients, 4000);
  }
}

TEST(AsyncCluster, OneSeedGivesTheSameBits) {
  Model model(digits(), {8});
  const AsyncRun run{.workers = 3, .rate = 0.1, .seed = 5, .gradients = 200};
  EXPECT_EQ(run_async(model, digits(), run).weights, run_async(model, digits(), run).weights);
}

TEST(AsyncCluster, OneWorkerIsSequentialTrainingWhateverTheCompensation) {
  Model model(digits(), {8});
  AsyncRun run{.rate = 0.1, .seed = 5, .gradients = 100};
  const Weights plain = run_async(model, digits(), run).weights;
  for (const auto form :
       {strategies::DelayCompensation::kPaddle, strategies::DelayCompensation::kConstant,
        strategies::DelayCompensation::kAdaptive, strategies::DelayCompensation::kClipped}) {
    run.compensation = strategies::DelayCompensationOptions::preset(form);
    EXPECT_EQ(run_async(model, digits(), run).weights, plain) << to_string(form);
  }
}

TEST(AsyncCluster, ABoundHoldsWorkersTogether) {
  Model model(digits(), {8});
  AsyncRun run{.workers = 4, .rate = 0.01, .seed = 1, .duration = 300, .exchange_time = 0.1};
  run.step_time = [](uint32_t worker, uint64_t) { return worker == 0 ? 5.0 : 1.0; };
  for (const uint32_t bound : {0U, 1U, 3U}) {
    run.staleness_bound = bound;
    EXPECT_EQ(run_async(model, digits(), run).largest_gap, bound) << bound;
  }
  run.staleness_bound.reset();
  EXPECT_GT(run_async(model, digits(), run).largest_gap, 50u);
}

TEST(LocalSgdCluster, AveragesAsOftenAsTheIntervalSays) {
  Model model(digits(), {8});
  strategies::LocalSgdOptions schedule;
  schedule.interval = 4;
  const auto outcome =
      run_local_sgd(model, digits(), {.workers = 2, .epochs = 2, .schedule = schedule});
  EXPECT_EQ(outcome.steps, 81);
  EXPECT_EQ(outcome.averages, 20);
}

}  // namespace
}  // namespace fleet::experiments
