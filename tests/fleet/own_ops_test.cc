// Ops from outside the library under every mode: one on the workers with its gradient, one that
// updates, on the servers. Where modes promise the bits of one machine, they have them.
#include "tests/testing/own_ops.h"

#include <gtest/gtest.h>
#include <string>

#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/fleet/rank_threads.h"
#include "tests/testing/async_thread_cluster.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;
using strategies::AsyncOptions;
using strategies::DelayCompensation;
using strategies::DelayCompensationOptions;

constexpr int kBatch = 16;
constexpr int kWidth = 130;  // 130 x 130 weights are cut among servers
constexpr int kSteps = 5;

class OwnNet {
 public:
  explicit OwnNet(bool whole_update = false) {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    startup_.set_random_seed(3);
    main_.set_op_library(own_ops());
    const auto x = fluid::layers::data("x", {kWidth});
    const auto hidden = cubed(fluid::layers::fc(x, kWidth), 0.25F);
    const auto loss = fluid::layers::mean(fluid::layers::square(fluid::layers::fc(hidden, 1)));
    loss_ = loss.name();
    if (whole_update) {
      UnitSgd(0.02).minimize(loss);
    } else {
      SignSgd(0.0005).minimize(loss);
    }
  }

  TrainingTask task() const {
    TrainingTask task{.main = &main_, .startup = &startup_, .loss = loss_, .feed = {}};
    task.steps = kSteps;
    task.feed = [](int, int begin, int end, int parts) {
      return feed(kBatch / parts * begin, kBatch / parts * end);
    };
    return task;
  }

 private:
  static fluid::Feed feed(int begin, int end) {
    std::vector<float> x;
    for (int row = begin; row < end; ++row) {
      for (int i = 0; i < kWidth; ++i) {
        x.push_back(static_cast<float>((row * 31 + i * 7) % 17) / 8 - 1);
      }
    }
    return {{"x", fluid::Tensor::from(x, {end - begin, kWidth})}};
  }

  fluid::Program main_;
  fluid::Program startup_;
  std::string loss_;
};

TEST(OwnOps, TrainWithServersToTheBitsOfOneMachine) {
  const OwnNet net;
  const LocalOutcome local = train_locally(net.task(), 2);
  EXPECT_LT(local.losses.back(), local.losses.front());
  const ThreadOutcome job = train_in_threads(net.task(), {.workers = 2, .servers = 2});
  for (const auto& error : job.errors) ADD_FAILURE() << error;
  EXPECT_EQ(mean_over_workers(job.losses), local.losses);
  ASSERT_FALSE(job.persistables.empty());
  EXPECT_EQ(job.persistables, local.persistables);
}

TEST(OwnOps, ThatTakeTheNormOfAGradientTrainWithServersToTheBitsOfOneMachine) {
  const OwnNet net(/*whole_update=*/true);
  const LocalOutcome local = train_locally(net.task(), 2);
  EXPECT_LT(local.losses.back(), local.losses.front());
  const ThreadOutcome job = train_in_threads(net.task(), {.workers = 2, .servers = 2});
  for (const auto& error : job.errors) ADD_FAILURE() << error;
  EXPECT_EQ(mean_over_workers(job.losses), local.losses);
  ASSERT_FALSE(job.persistables.empty());
  EXPECT_EQ(job.persistables, local.persistables);
}

// Rows come from the servers as those of the library's own lookups do.
TEST(OwnOps, ThatLookRowsUpTrainWithServersToTheBitsOfOneMachine) {
  fluid::Program main;
  fluid::Program startup;
  TrainingTask task{.main = &main, .startup = &startup, .loss = {}, .feed = {}};
  {
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    startup.set_random_seed(3);
    main.set_op_library(own_ops());
    const auto ids = fluid::layers::data("ids", {4}, fluid::DType::kInt64);
    const auto rows = own_lookup(ids, {3000, 16});
    const auto loss = fluid::layers::mean(fluid::layers::square(fluid::layers::fc(rows, 1)));
    task.loss = loss.name();
    fluid::optimizer::SGD({.learning_rate = 0.5}).minimize(loss);
  }
  task.steps = kSteps;
  task.feed = [](int, int begin, int end, int parts) {
    std::vector<int64_t> ids;
    for (int i = kBatch / parts * begin * 4; i < kBatch / parts * end * 4; ++i) {
      ids.push_back(i * 331 % 3000);
    }
    const auto count = static_cast<int64_t>(ids.size());
    return fluid::Feed{{"ids", fluid::Tensor::from(ids, {count / 4, 4})}};
  };
  const LocalOutcome local = train_locally(task, 2);
  EXPECT_LT(local.losses.back(), local.losses.front());
  const ThreadOutcome job = train_in_threads(task, {.workers = 2, .servers = 2});
  for (const auto& error : job.errors) ADD_FAILURE() << error;
  EXPECT_EQ(mean_over_workers(job.losses), local.losses);
  ASSERT_FALSE(job.persistables.empty());
  EXPECT_EQ(job.persistables, local.persistables);
}

TEST(OwnOps, TrainCollectivelyToTheBitsOfOneMachine) {
  const OwnNet net;
  const LocalOutcome local = train_locally(net.task(), 2);
  const RankOutcome job = train_in_ranks(net.task(), {.ranks = 2});
  EXPECT_EQ(mean_over_workers(job.losses), local.losses);
  for (const Values& rank : job.persistables) EXPECT_EQ(rank, local.persistables);
  const RankOutcome averaged =
      train_in_ranks(net.task(), {.ranks = 2,
                                  .config = {.mode = "collective", .collective_mode = "local_sgd"},
                                  .local_sgd = strategies::LocalSgdOptions{.interval = 2}});
  EXPECT_EQ(averaged.losses.front().size(), static_cast<size_t>(kSteps));
}

TEST(OwnOps, TrainInStepAsynchronouslyToTheBitsOfOneMachine) {
  const OwnNet net;
  const LocalOutcome local = train_locally(net.task(), 1);
  const std::pair<const char*, AsyncOptions> modes[] = {
      {"async", {.independent_recv = false}},
      {"half async", {.mode = ServerMode::kHalfAsync}},
      {"delay compensation",
       {.independent_recv = false,
        .delay_compensation = DelayCompensationOptions::preset(DelayCompensation::kClipped)}},
  };
  for (const auto& [name, options] : modes) {
    SCOPED_TRACE(name);
    AsyncThreadJob job;
    job.workers = 1;
    job.options = options;
    const AsyncThreadOutcome outcome = train_async_in_threads(net.task(), job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    EXPECT_EQ(outcome.losses[0], local.losses);
    EXPECT_EQ(outcome.parameters[0], local.parameters);
  }
}

TEST(OwnOps, TrainWithWorkersThatUpdateThemselves) {
  const OwnNet net;
  for (const ServerMode mode : {ServerMode::kGeo, ServerMode::kEasgd}) {
    SCOPED_TRACE(static_cast<int>(mode));
    AsyncThreadJob job;
    job.options.mode = mode;
    const AsyncThreadOutcome outcome = train_async_in_threads(net.task(), job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    for (const auto& losses : outcome.losses) EXPECT_LT(losses.back(), losses.front());
  }
}

}  // namespace
}  // namespace fleet::testing
