// Threads that compute the ops of workers, ranks and servers change no bit of a job, in any mode.

#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "tests/base/process/tile_threads.h"
#include "tests/fleet/rank_threads.h"
#include "tests/fleet/update_rules.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/sparse_net.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;
using strategies::AsyncOptions;

constexpr int kSteps = 4;

struct JobBits {
  std::vector<std::vector<float>> losses;
  std::vector<Values> persistables;
};

template <class Outcome>
JobBits bits_of(const Outcome& outcome) {
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  EXPECT_FALSE(outcome.persistables.empty());
  return {outcome.losses, {outcome.persistables}};
}

void expect_same_job(const JobBits& got, const JobBits& wanted) {
  EXPECT_EQ(got.losses, wanted.losses);
  EXPECT_TRUE(got.persistables == wanted.persistables);
}

JobBits in_step(const TrainingTask& task, uint32_t lanes) {
  return bits_of(train_in_threads(task, {.workers = 2,
                                         .servers = 2,
                                         .shards = 4,
                                         .lanes = lanes,
                                         .transport = transport::TransportChoice::kUnix}));
}

// Of one worker, whose gradients come in one order.
std::map<std::string, AsyncOptions> other_server_modes() {
  return {
      {"async", {.independent_recv = false}},
      {"half async", {.mode = ServerMode::kHalfAsync}},
      {"compensated",
       {.independent_recv = false,
        .delay_compensation = strategies::DelayCompensationOptions::preset(
            strategies::DelayCompensation::kConstant)}},
      {"geo", {.mode = ServerMode::kGeo, .geo_update_frequency = 2}},
      {"easgd", {.mode = ServerMode::kEasgd, .easgd_tau = 2}},
  };
}

void expect_same_server_jobs(const TrainingTask& task) {
  for (const uint32_t lanes : {1U, 2U}) {
    SCOPED_TRACE(str_cat("sync, ", lanes, " lanes"));
    compare_thread_counts([&] { return in_step(task, lanes); }, expect_same_job);
  }
  for (const auto& [name, options] : other_server_modes()) {
    SCOPED_TRACE(name);
    AsyncThreadJob job;
    job.workers = 1;
    job.options = options;
    compare_thread_counts([&] { return bits_of(train_async_in_threads(task, job)); },
                          expect_same_job);
  }
}

std::map<std::string, RankJob> rank_jobs() {
  const auto local_sgd = [](bool scheduled) {
    return RankJob{.config = {.mode = "collective",
                              .collective_mode = "local_sgd",
                              .local_sgd_scheduled = scheduled},
                   .local_sgd = strategies::LocalSgdOptions{.interval = 2}};
  };
  return {
      {"all-reduce", {.ranks = 2, .shards = 4}},
      {"averages of parameters", local_sgd(true)},
      {"averages of changes", local_sgd(false)},
  };
}

class ThreadCounts : public ::testing::TestWithParam<UpdateRule> {
 private:
  const SmallTiles small_{2};
};

TEST_P(ThreadCounts, OfAJobWithServersChangeNoBit) {
  const RandomProgram net(41, fluid::DType::kFloat32, GetParam().minimize);
  expect_same_server_jobs(net.task(kSteps));
}

TEST_P(ThreadCounts, OfAJobOfRanksChangeNoBit) {
  const RandomProgram net(42, fluid::DType::kFloat32, GetParam().minimize);
  const TrainingTask task = net.task(kSteps);
  for (const auto& [name, job] : rank_jobs()) {
    SCOPED_TRACE(name);
    compare_thread_counts(
        [&task, &job = job] {
          RankOutcome outcome = train_in_ranks(task, job);
          return JobBits{std::move(outcome.losses), std::move(outcome.persistables)};
        },
        expect_same_job);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, ThreadCounts, ::testing::ValuesIn(optimizer_rules()), name_of);

TEST(ThreadCountsOfRows, ChangeNoBit) {
  const SmallTiles small(2);
  for (const RowKind kind : {RowKind::kLookup, RowKind::kTwoTables, RowKind::kNce}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const SparseNet net({.kind = kind});
    expect_same_server_jobs(net.task(kSteps));
  }
}

}  // namespace
}  // namespace fleet::testing
