// Asynchronous jobs under virtual time: whatever the network does, every gradient counts once,
// every value is a version that the servers had, and every job ends.
#include "tests/testing/async_sim_cluster.h"

#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "base/strings.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;
using strategies::AsyncEvent;
using strategies::AsyncOptions;
using strategies::DelayCompensation;

AsyncSimOutcome expect_correct(const AsyncSimJob& job) {
  AsyncSimOutcome outcome = run_async_job(job);
  EXPECT_TRUE(outcome.ok()) << job.to_string() << "\n  " << outcome.failure;
  return outcome;
}

AsyncSimJob job_in_step() {
  AsyncSimJob job;
  job.options.independent_recv = false;
  return job;
}

TEST(AsyncSimCluster, TrainsInTheBackgroundInEveryShape) {
  for (const uint32_t workers : {1U, 2U, 4U}) {
    for (const uint32_t servers : {1U, 2U, 3U}) {
      AsyncSimJob job;
      job.workers = workers;
      job.servers = servers;
      job.lanes = servers;
      expect_correct(job);
    }
  }
}

TEST(AsyncSimCluster, MovesSlicesOfManyPieces) {
  AsyncSimJob job;
  job.steps = 3;
  job.variables = {70'000, 3, 140'000, 0};
  job.variables.pop_back();
  job.faults.cut = 0.03;
  job.faults.duplicate = 0.05;
  expect_correct(job);
}

TEST(AsyncSimCluster, MergesWhatWaitsAndLosesNothing) {
  AsyncSimJob job;
  job.steps = 40;
  job.compute = std::chrono::microseconds(5);
  job.options.max_merge_var_num = 4;
  job.options.send_queue_size = 8;
  job.faults.delay_max = std::chrono::microseconds(400);
  const AsyncSimOutcome merged = expect_correct(job);
  job.options.max_merge_var_num = 1;
  const AsyncSimOutcome single = expect_correct(job);
  EXPECT_EQ(single.pushes, job.workers * job.steps * job.variables.size());
  EXPECT_LT(merged.pushes, single.pushes / 2);
}

// A job of two threads whose gradients leave together makes half the pushes of one that sends each.
TEST(AsyncSimCluster, ThreadsOfAHalfAsynchronousWorkerSendOneGradient) {
  AsyncSimJob job;
  job.options.mode = ServerMode::kHalfAsync;
  job.options.independent_recv = false;
  job.options.trainer_threads = 2;
  job.options.send_queue_size = job.options.max_merge_var_num = 2;
  EXPECT_EQ(expect_correct(job).pushes, job.workers * job.steps * job.variables.size());
}

// The same seed gives the same events, so the same bits, when the mode is the only difference.
TEST(AsyncSimCluster, HalfAsynchronousWithOneThreadEqualsAsynchronous) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    AsyncSimJob job = job_in_step();
    job.seed = seed;
    job.workers = 1 + static_cast<uint32_t>(seed % 3);
    job.faults.cut = seed % 2 == 0 ? 0.02 : 0.0;
    AsyncSimJob half = job;
    half.options.mode = ServerMode::kHalfAsync;
    const AsyncSimOutcome a = expect_correct(job);
    const AsyncSimOutcome b = expect_correct(half);
    EXPECT_EQ(a.logs, b.logs) << seed;
    EXPECT_EQ(a.values, b.values) << seed;
  }
}

TEST(AsyncSimCluster, MeanStalenessOfEqualWorkersIsTheirNumberLessOne) {
  for (const uint32_t workers : {1U, 2U, 4U, 8U}) {
    AsyncSimJob job = job_in_step();
    job.workers = workers;
    job.servers = 1;
    job.steps = 300;
    job.variables = {4};
    const AsyncSimOutcome outcome = expect_correct(job);
    EXPECT_NEAR(outcome.staleness.mean(), workers - 1.0, 0.02 * workers);
  }
}

// Longer than every deadline but stall_deadline; with a bound the others wait for it in requests.
TEST(AsyncSimCluster, AnEvaluationOfFourMinutesKillsNothing) {
  for (const auto mode :
       {ServerMode::kAsync, ServerMode::kHalfAsync, ServerMode::kGeo, ServerMode::kEasgd}) {
    AsyncSimJob job = job_in_step();
    job.options.mode = mode;
    job.options.geo_update_frequency = job.options.easgd_tau = 2;
    if (mode == ServerMode::kAsync) job.options.staleness_bound = 1;
    job.steps = 4;
    job.compute = std::chrono::milliseconds(10);
    job.straggle = 48000;  // at least half of it is drawn
    job.heartbeat_timeout = std::chrono::seconds(10);
    EXPECT_GE(expect_correct(job).time, std::chrono::minutes(4)) << to_string(mode);
  }
}

// That nobody is further ahead than the bound is checked wherever a worker goes on.
TEST(AsyncSimCluster, ALooserBoundOnStalenessWaitsLess) {
  std::vector<Duration> times;
  for (const uint32_t bound : {1U, 20U}) {
    AsyncSimJob job = job_in_step();
    job.workers = 4;
    job.steps = 100;
    job.stalls = 50;
    job.options.staleness_bound = bound;
    times.push_back(expect_correct(job).time);
  }
  EXPECT_LT(times[1].count() * 1.05, times[0].count());
}

TEST(AsyncSimCluster, ABoundThatIsNotKeptWouldBeNoticed) {
  AsyncSimJob job = job_in_step();
  job.workers = 2;
  job.steps = 30;
  job.straggle = 8;
  const AsyncSimOutcome free = expect_correct(job);
  // Without the bound the fast worker runs away: worker 1 has 30 steps when worker 0 has few.
  uint64_t slow = 0;
  for (const AsyncEvent& event : free.logs.front()) {
    if (event.kind != AsyncEvent::Kind::kUpdate || event.variable != 0) continue;
    if (event.worker == 0) slow = event.clock;
    if (event.worker == 1 && event.clock == 30) break;
  }
  EXPECT_LT(slow, 10U);
}

TEST(AsyncSimCluster, CompensatesFromTheValueThatTheSenderWasGiven) {
  AsyncSimJob job = job_in_step();
  job.workers = 4;
  job.steps = 20;
  job.options.delay_compensation.form = DelayCompensation::kPaddle;
  const AsyncSimOutcome with = expect_correct(job);
  job.options.delay_compensation.form = DelayCompensation::kNone;
  EXPECT_NE(with.values, expect_correct(job).values);
}

TEST(AsyncSimCluster, WorkersThatFinishEarlyHoldNobodyUp) {
  for (const bool bounded : {false, true}) {
    AsyncSimJob job = job_in_step();
    job.workers = 3;
    job.uneven_steps = {0, 2, 9};
    if (bounded) job.options.staleness_bound = 1;
    expect_correct(job);
  }
}

// One worker that exchanges differences has what it would have alone, to rounding.
TEST(AsyncSimCluster, GeoOfOneWorkerIsLocalTraining) {
  AsyncSimJob job;
  job.workers = 1;
  job.steps = 12;
  job.options.mode = ServerMode::kGeo;
  job.options.geo_update_frequency = 3;
  job.options.send_queue_size = 8;
  job.options.independent_recv = false;
  const AsyncSimOutcome geo = expect_correct(job);
  job.options.geo_update_frequency = 12;
  const AsyncSimOutcome alone = expect_correct(job);
  ASSERT_EQ(geo.values.size(), alone.values.size());
  for (size_t v = 0; v < geo.values.size(); ++v) {
    for (size_t i = 0; i < geo.values[v].size(); ++i) {
      EXPECT_NEAR(geo.values[v][i], alone.values[v][i], 1e-5);
      EXPECT_NEAR(geo.local[0][v][i], geo.values[v][i], 1e-5);
    }
  }
}

TEST(AsyncSimCluster, TheSameSeedGivesTheSameRun) {
  AsyncSimJob job = draw_async_job(ServerMode::kAsync, 7);
  const AsyncSimOutcome first = expect_correct(job);
  const AsyncSimOutcome again = expect_correct(job);
  EXPECT_EQ(first.trace_hash, again.trace_hash);
  EXPECT_EQ(first.logs, again.logs);
  EXPECT_EQ(first.values, again.values);
}

// A server that forgets what it has applied is found out.
struct ForgetfulRules final : strategies::AsyncServerRules {
  bool was_applied(uint64_t, uint64_t) const override { return false; }
};

TEST(AsyncSimCluster, DoubleUpdatesWouldBeNoticed) {
  int noticed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    AsyncSimJob job = job_in_step();
    job.seed = seed;
    job.steps = 10;
    job.faults.duplicate = 0.2;
    job.rules = std::make_shared<const ForgetfulRules>();
    if (!run_async_job(job).ok()) ++noticed;
  }
  EXPECT_GT(noticed, 15);
}

// FLEET_SIM_SEEDS: how many; FLEET_SIM_SEED: that one only.
void survive(ServerMode mode) {
  const char* one = std::getenv("FLEET_SIM_SEED");
  const char* many = std::getenv("FLEET_SIM_SEEDS");
  const uint64_t begin = one == nullptr ? 0 : std::strtoull(one, nullptr, 10);
  const uint64_t count = many == nullptr ? 1000 : std::strtoull(many, nullptr, 10);
  const uint64_t end = one == nullptr ? count : begin + 1;
  int failures = 0;
  uint64_t lost_lanes = 0;
  for (uint64_t seed = begin; seed < end && failures < 5; ++seed) {
    const AsyncSimJob job = draw_async_job(mode, seed);
    const AsyncSimOutcome outcome = run_async_job(job);
    lost_lanes += outcome.lost_lanes;
    if (outcome.ok()) continue;
    ++failures;
    ADD_FAILURE() << job.to_string() << "\n  " << outcome.failure
                  << "\n  again: FLEET_SIM_SEED=" << seed;
  }
  if (one == nullptr) {
    EXPECT_GT(lost_lanes, count / 4);
  }
}

TEST(AsyncSimSeeds, AsyncSurvivesBadNetworks) {
  survive(ServerMode::kAsync);
}
TEST(AsyncSimSeeds, HalfAsyncSurvivesBadNetworks) {
  survive(ServerMode::kHalfAsync);
}
TEST(AsyncSimSeeds, GeoSurvivesBadNetworks) {
  survive(ServerMode::kGeo);
}
TEST(AsyncSimSeeds, EasgdSurvivesBadNetworks) {
  survive(ServerMode::kEasgd);
}

}  // namespace
}  // namespace fleet::testing
