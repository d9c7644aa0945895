// Random small programs: cutting a step into logical shards changes no more than rounding, and a
// job of servers and workers gives the very bits of one machine with the same shards.

#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/fleet/random_program.h"

namespace fleet::testing {
namespace {

using fluid::DType;

class RandomPrograms : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomPrograms, ShardsChangeNoMoreThanRoundingInFloat32) {
  SCOPED_TRACE(str_cat("seed ", GetParam()));
  const RandomProgram program(GetParam(), DType::kFloat32);
  const auto whole = train_locally(program.task(50), 1);
  for (const int shards : {2, 3, 4}) {
    const auto cut = train_locally(program.task(50), shards);
    EXPECT_LE(largest_difference(whole.parameters, cut.parameters, DType::kFloat32), 1e-6)
        << shards;
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(whole.losses[i], cut.losses[i], 1e-6) << "loss of step " << i;
    }
  }
}

TEST_P(RandomPrograms, ShardsChangeNoMoreThanRoundingInFloat64) {
  SCOPED_TRACE(str_cat("seed ", GetParam()));
  const RandomProgram program(GetParam(), DType::kFloat64);
  const auto whole = train_locally(program.task(50), 1);
  for (const int shards : {2, 4}) {
    const auto cut = train_locally(program.task(50), shards);
    EXPECT_LE(largest_difference(whole.parameters, cut.parameters, DType::kFloat64), 1e-12)
        << shards;
  }
}

TEST_P(RandomPrograms, AJobOfServersGivesTheBitsOfOneMachine) {
  SCOPED_TRACE(str_cat("seed ", GetParam()));
  const auto dtype = GetParam() % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
  const RandomProgram program(GetParam(), dtype);
  Draw draw(GetParam() + 1000);
  ThreadJob job;
  job.workers = draw.between(1, 3);
  job.servers = draw.between(1, 3);
  job.shards = job.workers == 3 ? 0 : 4;
  const int shards = job.shards == 0 ? job.workers : job.shards;
  const auto local = train_locally(program.task(10), shards);
  const auto outcome = train_in_threads(program.task(10), job);
  ASSERT_TRUE(outcome.errors.empty()) << outcome.errors.front();
  for (const auto& parameters : outcome.parameters) EXPECT_TRUE(parameters == local.parameters);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range<uint64_t>(1, 21));

}  // namespace
}  // namespace fleet::testing
