// Random small programs: cutting a step into logical shards changes no more than rounding, and a
// job of servers and workers gives the very bits of one machine with the same shards.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/fleet/drawn_rules.h"
#include "tests/fleet/random_program.h"
#include "tests/testing/nets/sparse_net.h"

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

// Servers exchange numbers: with Unix sockets each knows the others' names from the first.
ThreadJob draw_job(Draw& draw) {
  ThreadJob job;
  job.workers = draw.between(1, 3);
  job.servers = draw.between(1, 3);
  job.shards = job.workers == 3 ? 0 : 4;
  job.transport = transport::TransportChoice::kUnix;
  return job;
}

// All that the servers have after every step, parameters and states.
void expect_bits_of_one_machine(const TrainingTask& task, ThreadJob job) {
  SCOPED_TRACE(str_cat(job.workers, " workers, ", job.servers, " servers"));
  job.keep_steps = true;
  const auto local = train_locally(task, job.shards == 0 ? job.workers : job.shards, true);
  const auto outcome = train_in_threads(task, job);
  ASSERT_TRUE(outcome.errors.empty()) << outcome.errors.front();
  for (const auto& [name, bytes] : local.parameters) {
    EXPECT_TRUE(outcome.persistables.contains(name)) << name;
  }
  for (const auto& [name, bytes] : outcome.persistables) {
    EXPECT_TRUE(local.persistables.at(name) == bytes) << name;
  }
  EXPECT_THAT(differing_steps(outcome.kept_steps, local.kept_steps), ::testing::IsEmpty());
}

TEST_P(RandomPrograms, AJobOfServersGivesTheBitsOfOneMachine) {
  SCOPED_TRACE(str_cat("seed ", GetParam()));
  const auto dtype = GetParam() % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
  const RandomProgram program(GetParam(), dtype);
  Draw draw(GetParam() + 1000);
  expect_bits_of_one_machine(program.task(10), draw_job(draw));
}

// Of every optimizer several.
class RandomRules : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomRules, OfDenseNetsGiveTheBitsOfOneMachine) {
  Draw draw(GetParam() + 2000);
  const auto dtype = draw.between(0, 3) == 0 ? DType::kFloat64 : DType::kFloat32;
  const UpdateRule rule = draw_rule(draw, {.optimizer = static_cast<int>(GetParam() % kOptimizers),
                                           .schedules = dtype == DType::kFloat32});
  SCOPED_TRACE(str_cat(rule.name, ", seed ", GetParam()));
  const RandomProgram program(GetParam(), dtype, rule.minimize);
  expect_bits_of_one_machine(program.task(5), draw_job(draw));
}

TEST_P(RandomRules, OfTablesGiveTheBitsOfOneMachine) {
  Draw draw(GetParam() + 3000);
  const UpdateRule rule = draw_rule(draw, {.optimizer = static_cast<int>(GetParam() % kForRows)});
  SparseNetOptions options{.minimize = rule.minimize};
  options.kind = static_cast<RowKind>(draw.between(0, static_cast<int>(RowKind::kHsigmoid)));
  if (draw.coin()) options.padding = 3;
  SCOPED_TRACE(str_cat(rule.name, ", net ", static_cast<int>(options.kind), ", seed ", GetParam()));
  const SparseNet net(options);
  expect_bits_of_one_machine(net.task(4), draw_job(draw));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range<uint64_t>(1, 21));
INSTANTIATE_TEST_SUITE_P(Seeds, RandomRules, ::testing::Range<uint64_t>(1, 49));

}  // namespace
}  // namespace fleet::testing
