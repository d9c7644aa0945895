// Random nets, run by workers that update by themselves: what they exchange is what plain loops
// over one machine's values give.

#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/fleet/by_hand.h"
#include "tests/fleet/random_program.h"
#include "tests/fleet/rank_threads.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/sample_task.h"
#include "tests/transpiler/sample_nets.h"

namespace fleet::testing {
namespace {

using transpiler::SampleNet;

Values trained(const SampleNet& net, const Values& values) {
  Values kept;
  for (const auto* param : net.main.global_block().parameters()) {
    if (param->trainable) kept[param->name] = values.at(param->name);
  }
  return kept;
}

AsyncThreadOutcome run_geo(const TrainingTask& task, int servers, int interval) {
  AsyncThreadJob job{.workers = 1, .servers = servers};
  job.options = {.mode = fluid::ServerMode::kGeo,
                 .geo_update_frequency = static_cast<uint32_t>(interval)};
  AsyncThreadOutcome outcome = train_async_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  return outcome;
}

TEST(RandomExchanges, OfOneWorkerUnderGeoAreItsArithmetic) {
  for (uint64_t seed = 1; seed <= 20 && !HasFailure(); ++seed) {
    const SampleNet net = transpiler::random_net(seed);
    const TrainingTask task = sample_task(net);
    const LocalOutcome local = train_locally(task, 1);
    for (const int interval : {1, task.steps}) {
      SCOPED_TRACE(str_cat("seed ", seed, ", every ", interval, " steps"));
      const auto outcome = run_geo(task, 1 + static_cast<int>(seed % 3), interval);
      const auto expected = exchange_by_hand(task, fluid::ServerMode::kGeo, interval);
      EXPECT_EQ(outcome.losses, expected.losses);
      const Values values = trained(net, outcome.parameters.at(0));
      EXPECT_TRUE(values == trained(net, expected.persistables.at(0)));
      // A difference and its sum with the old value are rounded.
      EXPECT_LE(largest_difference(values, local.parameters, fluid::DType::kFloat32), 1e-6);
    }
  }
}

void expect_averages(uint64_t seed, const RankJob& job, Averaged averaged) {
  SCOPED_TRACE(str_cat("seed ", seed));
  const SampleNet net = transpiler::random_net(seed);
  const TrainingTask task = sample_task(net);
  const RankOutcome outcome = train_in_ranks(task, job);
  const int interval = job.local_sgd ? job.local_sgd->interval : 1;
  const HandOutcome expected = average_by_hand(task, job.ranks, interval, averaged);
  EXPECT_EQ(outcome.losses, expected.losses);
  for (size_t rank = 0; rank < outcome.persistables.size(); ++rank) {
    EXPECT_TRUE(outcome.persistables[rank] == expected.persistables[rank]) << "rank " << rank;
  }
}

TEST(RandomExchanges, OfRanksThatAverageParametersAreTheirArithmetic) {
  for (uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    const strategies::LocalSgdOptions every{.interval = seed % 2 == 0 ? 1 : 2};
    expect_averages(seed,
                    {.ranks = seed % 3 == 0 ? 4 : 2,
                     .config = {.mode = "collective",
                                .collective_mode = "local_sgd",
                                .local_sgd_scheduled = true},
                     .local_sgd = every},
                    Averaged::kParameters);
  }
}

TEST(RandomExchanges, OfRanksThatAverageChangesAreTheirArithmetic) {
  for (uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    expect_averages(seed,
                    {.ranks = seed % 3 == 0 ? 4 : 2,
                     .config = {.mode = "collective",
                                .nccl_comm_num = 1 + static_cast<int>(seed % 2),
                                .collective_mode = "local_sgd",
                                .local_sgd_scheduled = false}},
                    Averaged::kChanges);
  }
}

}  // namespace
}  // namespace fleet::testing
