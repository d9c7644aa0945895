// Sparse gradients in asynchronous jobs of threads.
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <vector>

#include "base/strings.h"
#include "fluid/optimizer/averages.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/sparse_net.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;

AsyncThreadOutcome expect_no_errors(const TrainingTask& task, const AsyncThreadJob& job) {
  AsyncThreadOutcome outcome = train_async_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  return outcome;
}

// Means over several steps: a step has few rows, and others' gradients come when they come.
void expect_learned(const std::vector<float>& losses) {
  constexpr size_t kSteps = 20;
  ASSERT_GT(losses.size(), 2 * kSteps);
  const float first = std::accumulate(losses.begin(), losses.begin() + kSteps, 0.0F);
  const float last = std::accumulate(losses.end() - kSteps, losses.end(), 0.0F);
  EXPECT_LT(last, 0.8F * first);
}

AsyncThreadJob alone(ServerMode mode) {
  AsyncThreadJob job;
  job.workers = 1;
  job.options.mode = mode;
  job.options.independent_recv = false;
  return job;
}

void expect_local_bits(const SparseNet& net, const AsyncThreadJob& job) {
  const TrainingTask task = net.task(8);
  const LocalOutcome local = train_locally(task, 1);
  const AsyncThreadOutcome outcome = expect_no_errors(task, job);
  EXPECT_EQ(outcome.losses[0], local.losses);
  for (const auto& [name, bytes] : local.parameters) {
    ASSERT_TRUE(outcome.persistables.contains(name)) << name;
    EXPECT_TRUE(outcome.persistables.at(name) == bytes) << name << " differs";
  }
}

TEST(SparseAsyncCluster, OneWorkerThatReceivesInStepHasTheBitsOfOneMachine) {
  for (const RowKind kind : {RowKind::kLookup, RowKind::kLookupV2, RowKind::kTwoLookups,
                             RowKind::kTwoTables, RowKind::kNce, RowKind::kHsigmoid}) {
    for (const ServerMode mode : {ServerMode::kAsync, ServerMode::kHalfAsync}) {
      SCOPED_TRACE(str_cat(static_cast<int>(kind), " ", to_string(mode)));
      expect_local_bits(SparseNet({.kind = kind}), alone(mode));
    }
  }
}

// Of one worker in step no row is late.
void expect_local_bits_compensated(const SparseNet& net, AsyncThreadJob job) {
  for (const char* form : {"constant", "adaptive", "clipped"}) {
    SCOPED_TRACE(form);
    job.options.delay_compensation = strategies::DelayCompensationOptions::preset(
        strategies::parse_delay_compensation(form).value());
    expect_local_bits(net, job);
  }
}

TEST(SparseAsyncCluster, CompensationOfOneWorkerHasTheBitsOfOneMachine) {
  for (const RowKind kind : {RowKind::kLookup, RowKind::kTwoTables, RowKind::kHsigmoid}) {
    SCOPED_TRACE(static_cast<int>(kind));
    expect_local_bits_compensated(SparseNet({.kind = kind}), alone(ServerMode::kAsync));
  }
}

TEST(SparseAsyncCluster, CompensationOfDistributedTablesHasTheBitsOfOneMachine) {
  AsyncThreadJob job = alone(ServerMode::kAsync);
  job.servers = 3;
  const SparseNet net({.kind = RowKind::kTwoTables, .is_distributed = true});
  expect_local_bits_compensated(net, job);
}

TEST(SparseAsyncCluster, CompensatedRowsLearn) {
  for (const bool distributed : {false, true}) {
    SCOPED_TRACE(distributed);
    const SparseNet net({.is_distributed = distributed, .learnable = true});
    AsyncThreadJob job;
    job.options.delay_compensation =
        strategies::DelayCompensationOptions::preset(strategies::DelayCompensation::kClipped);
    const AsyncThreadOutcome outcome = expect_no_errors(net.task(200), job);
    for (const auto& losses : outcome.losses) expect_learned(losses);
  }
}

TEST(SparseAsyncCluster, DistributedTablesOfOneWorkerHaveTheBitsOfOneMachine) {
  for (const RowKind kind : {RowKind::kLookup, RowKind::kLookupV2, RowKind::kTwoLookups,
                             RowKind::kTwoVersions, RowKind::kTwoTables}) {
    for (const ServerMode mode : {ServerMode::kAsync, ServerMode::kHalfAsync}) {
      for (const int servers : {1, 2, 3}) {
        SCOPED_TRACE(str_cat(static_cast<int>(kind), " ", to_string(mode), " ", servers));
        const SparseNet net({.kind = kind, .padding = 3, .is_distributed = true});
        AsyncThreadJob job = alone(mode);
        job.servers = servers;
        expect_local_bits(net, job);
      }
    }
  }
}

// Norms of the trainer's gradient, and updates of wholes that one server has.
TEST(SparseAsyncCluster, DistributedTablesWithNormsHaveTheBitsOfOneMachine) {
  using fluid::Variable;
  namespace rules = fluid::optimizer;
  const std::vector<std::function<void(const Variable&)>> all = {
      [](const Variable& loss) {
        rules::SGD({.learning_rate = 0.1, .grad_clip = fluid::clip::GradientClipByGlobalNorm(0.05)})
            .minimize(loss);
      },
      [](const Variable& loss) { rules::LarsMomentum({.learning_rate = 0.1}).minimize(loss); },
      [](const Variable& loss) { rules::Lamb({.learning_rate = 0.01}).minimize(loss); },
      [](const Variable& loss) {
        rules::SGD sgd({.learning_rate = 0.1});
        rules::Lookahead(sgd, {.alpha = 0.5, .k = 2}).minimize(loss);
      },
  };
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(i);
    AsyncThreadJob job = alone(ServerMode::kAsync);
    job.servers = 3;
    expect_local_bits(
        SparseNet({.kind = RowKind::kTwoTables, .minimize = all[i], .is_distributed = true}), job);
  }
}

TEST(SparseAsyncCluster, DistributedTablesLearnInEveryMode) {
  const SparseNet net({.is_distributed = true, .learnable = true});
  const TrainingTask task = net.task(200);
  for (const ServerMode mode : {ServerMode::kAsync, ServerMode::kHalfAsync}) {
    for (const uint32_t threads : {1U, 2U}) {
      SCOPED_TRACE(str_cat(to_string(mode), ", ", threads, " threads"));
      AsyncThreadJob job;
      job.servers = 3;
      job.options.mode = mode;
      job.options.trainer_threads = job.lanes = threads;
      const AsyncThreadOutcome outcome = expect_no_errors(task, job);
      for (const auto& losses : outcome.losses) expect_learned(losses);
    }
  }
}

class SparseGeo : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Tables, SparseGeo, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "Distributed" : "Sparse"; });

TEST_P(SparseGeo, OfOneWorkerIsLocalTraining) {
  const SparseNet net({.is_distributed = GetParam()});
  const TrainingTask task = net.task(10);
  const LocalOutcome local = train_locally(task, 1);
  AsyncThreadJob job = alone(ServerMode::kGeo);
  job.options.geo_update_frequency = 4;
  const AsyncThreadOutcome outcome = expect_no_errors(task, job);
  ASSERT_EQ(outcome.losses[0].size(), local.losses.size());
  for (size_t i = 0; i < local.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[0][i], local.losses[i], 1e-5) << i;
  }
}

TEST(SparseAsyncCluster, EveryModeLearns) {
  const SparseNet net({.learnable = true});
  const TrainingTask task = net.task(200);
  for (const ServerMode mode :
       {ServerMode::kAsync, ServerMode::kHalfAsync, ServerMode::kGeo, ServerMode::kEasgd}) {
    for (const uint32_t threads : {1U, 2U}) {
      SCOPED_TRACE(str_cat(to_string(mode), ", ", threads, " threads"));
      AsyncThreadJob job;
      job.options.mode = mode;
      job.options.trainer_threads = threads;
      job.options.geo_update_frequency = job.options.easgd_tau = 4;
      job.lanes = threads;
      const AsyncThreadOutcome outcome = expect_no_errors(task, job);
      for (const auto& losses : outcome.losses) {
        ASSERT_EQ(losses.size(), static_cast<size_t>(task.steps));
        expect_learned(losses);
      }
    }
  }
}

TEST(SparseAsyncCluster, MergedAndBoundedGradientsLearn) {
  const SparseNet net({.learnable = true});
  const TrainingTask task = net.task(200);
  AsyncThreadJob job;
  job.options.max_merge_var_num = job.options.send_queue_size = 4;
  const auto merged = expect_no_errors(task, job);
  for (const auto& losses : merged.losses) expect_learned(losses);
  job.options.max_merge_var_num = job.options.send_queue_size = 1;
  job.options.staleness_bound = 2;
  const auto bounded = expect_no_errors(task, job);
  for (const auto& losses : bounded.losses) expect_learned(losses);
}

}  // namespace
}  // namespace fleet::testing
