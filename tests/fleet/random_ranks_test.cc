// Random nets in jobs without servers: rings, fused buckets, and the devices of one process give
// the bits of one machine with the same shards.

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/fleet/rank_threads.h"
#include "tests/testing/sample_task.h"
#include "tests/transpiler/sample_nets.h"

namespace fleet::testing {
namespace {

void expect_bits_of_one_machine(uint64_t seed, RankJob job) {
  SCOPED_TRACE(str_cat("seed ", seed));
  const transpiler::SampleNet net = transpiler::random_net(seed);
  const TrainingTask task = sample_task(net);
  job.ranks = seed % 3 == 0 ? 4 : 2;
  job.shards = 4;
  const LocalOutcome local = train_locally(task, job.shards);
  const RankOutcome outcome = train_in_ranks(task, job);
  EXPECT_EQ(mean_over_workers(outcome.losses), local.losses);
  for (const Values& values : outcome.persistables) {
    for (const auto& [name, bytes] : local.parameters) {
      // What batch norm keeps is each rank's own.
      if (!net.main.global_block().var(name).trainable) continue;
      EXPECT_TRUE(values.at(name) == bytes) << name << " differs";
    }
  }
}

using Form = transpiler::NamedConfig;

class RandomRanks : public ::testing::TestWithParam<Form> {};

TEST_P(RandomRanks, TrainToTheBitsOfOneMachine) {
  RankJob job{.config = GetParam().config};
  job.config.mode = "collective";
  for (uint64_t seed = 1; seed <= 12 && !HasFailure(); ++seed) {
    expect_bits_of_one_machine(seed, job);
  }
}

std::string form_name(const ::testing::TestParamInfo<Form>& form) {
  return form.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    Forms, RandomRanks,
    ::testing::Values(
        Form{"OneRing", {.collective_mode = "grad_allreduce"}},
        Form{"ThreeRings", {.nccl_comm_num = 3, .collective_mode = "grad_allreduce"}},
        Form{"SmallBuckets", {.collective_mode = "grad_allreduce", .fuse_all_reduce_bytes = 2000}},
        Form{"LargeBucketsOnTwoRings",
             {.nccl_comm_num = 2,
              .collective_mode = "grad_allreduce",
              .fuse_all_reduce_bytes = 1 << 20}},
        Form{"DevicesOfOneProcess", {.collective_mode = "single_process_multi_thread"}},
        Form{"DevicesOfOneProcessWithBuckets",
             {.collective_mode = "single_process_multi_thread", .fuse_all_reduce_bytes = 2000}}),
    form_name);

}  // namespace
}  // namespace fleet::testing
