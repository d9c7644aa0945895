// Jobs under virtual time: whatever the network does, every worker receives the bits of sequential
// arithmetic after every step, and every job ends.
#include "tests/testing/sim_cluster.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <optional>
#include <string>

#include "base/strings.h"

namespace fleet::testing {
namespace {

void expect_correct(const SimJob& job) {
  const SimOutcome outcome = run_job(job);
  EXPECT_TRUE(outcome.ok()) << job.to_string() << "\n  " << outcome.failure;
}

TEST(SimCluster, TrainsInEveryShape) {
  struct Shape {
    uint32_t workers, servers, shards;
  };
  for (const Shape shape :
       {Shape{2, 2, 2}, {4, 1, 4}, {1, 3, 1}, {1, 2, 4}, {2, 2, 4}, {4, 2, 4}, {3, 2, 7}}) {
    SimJob job;
    job.workers = shape.workers;
    job.servers = shape.servers;
    job.shards = shape.shards;
    expect_correct(job);
  }
}

// Gradients of the last layers come first; with several shards a worker sends each piece for each
// of its nodes, one after the other.
TEST(SimCluster, TrainsWhereAServerHasRoomForOnePieceOfEverybody) {
  for (const uint32_t lanes : {1U, 2U}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      SimJob job;
      job.seed = seed;
      job.workers = 3;
      job.shards = 8;
      job.lanes = lanes;
      job.slices = {3, 70'000, 7, 140'000, 5, 2};
      job.window_bytes = seed % 2 == 0 ? 1 : 1024 * 1024;
      job.steps = 3;
      job.faults.cut = seed < 5 ? 0.0 : 0.005;
      job.faults.duplicate = seed < 5 ? 0.0 : 0.05;
      expect_correct(job);
    }
  }
}

TEST(SimCluster, GivesTheSameBitsForEveryNumberOfWorkersAndServers) {
  std::optional<std::vector<std::vector<float>>> first;
  for (const uint32_t workers : {1U, 2U, 4U}) {
    for (const uint32_t servers : {1U, 2U, 3U}) {
      SimJob job;
      job.workers = workers;
      job.servers = servers;
      job.shards = 4;
      const SimOutcome outcome = run_job(job);
      ASSERT_TRUE(outcome.ok()) << job.to_string() << "\n  " << outcome.failure;
      if (!first) first = outcome.values;
      EXPECT_EQ(outcome.values, *first) << job.to_string();
    }
  }
}

TEST(SimCluster, LetsAServerWithoutSlicesTakePart) {
  SimJob job;
  job.servers = 3;
  job.last_server_empty = true;
  expect_correct(job);
}

TEST(SimCluster, DividesByTheShardsOfTheWorkersThatAreLeft) {
  SimJob job;
  job.workers = 3;
  job.shards = 5;
  job.uneven_steps = {2, 5, 3};
  expect_correct(job);
}

TEST(SimCluster, ExchangesWhatUpdatesNeedOfOtherServers) {
  for (const uint32_t exchanges : {1U, 2U}) {
    for (const uint32_t servers : {1U, 2U, 3U}) {
      SimJob job;
      job.workers = 3;
      job.servers = servers;
      job.shards = 4;
      job.exchanges = exchanges;
      job.uneven_steps = {5, 2, 5};
      expect_correct(job);
      job.last_server_empty = true;
      expect_correct(job);
    }
  }
}

TEST(SimCluster, SumsSparseGradients) {
  for (const uint32_t servers : {1U, 2U, 3U}) {
    SimJob job;
    job.workers = 3;
    job.servers = servers;
    job.shards = 5;
    job.rows = true;
    job.slices = {3, 7, 11, 5, 2, 40};
    expect_correct(job);
    job.uneven_steps = {2, 5, 3};
    expect_correct(job);
    job.slices[2] = 150000;  // several pieces
    job.steps = 2;
    job.uneven_steps.clear();
    expect_correct(job);
  }
}

// Workers send large sparse gradients when the server lets them in, and what a worker does not
// have holds nobody up.
TEST(SimCluster, SumsSparseGradientsWhereAServerHasRoomForFew) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SimJob job;
    job.seed = seed;
    job.workers = 5;
    job.servers = 1 + seed % 2;
    job.shards = seed % 4 < 2 ? 5 : 9;
    job.lanes = 1 + seed % 3;
    job.rows = true;
    job.skips_rows = seed % 2 == 0;
    job.slices = {3, 7, 11, 5, 2, 40, 1, 1, 30};
    job.window_bytes = seed % 5 == 0 ? 1 : 100 * (seed % 5);
    if (seed < 4) job.slices[2] = 150'000;  // several pieces
    job.steps = seed < 4 ? 2 : 5;
    job.faults.cut = seed % 3 == 0 ? 0.0 : 0.02;
    job.faults.duplicate = seed % 3 == 0 ? 0.0 : 0.05;
    expect_correct(job);
  }
}

// Enough cuts that every link between servers breaks in many jobs.
TEST(SimCluster, HealsLinksBetweenServers) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SimJob job;
    job.seed = seed;
    job.servers = 3;
    job.exchanges = 2;
    job.steps = 8;
    job.faults.cut = 0.05;
    job.faults.duplicate = 0.1;
    job.faults.delay_max = std::chrono::microseconds(300);
    expect_correct(job);
  }
}

TEST(SimCluster, MovesSlicesOfManyPieces) {
  SimJob job;
  job.steps = 2;
  job.slices = {70'000, 3, 140'000};
  job.flush_bytes = 1024;
  job.faults.cut = 0.05;
  expect_correct(job);
}

TEST(SimCluster, SurvivesAThousandSeedsOfBadNetworks) {
  const char* one = std::getenv("FLEET_SIM_SEED");
  const uint64_t begin = one == nullptr ? 0 : std::strtoull(one, nullptr, 10);
  const uint64_t end = one == nullptr ? 1000 : begin + 1;
  int failures = 0;
  uint64_t lost_lanes = 0;
  for (uint64_t seed = begin; seed < end && failures < 5; ++seed) {
    const SimJob job = draw_job(seed);
    const SimOutcome outcome = run_job(job);
    lost_lanes += outcome.lost_lanes;
    if (outcome.ok()) continue;
    ++failures;
    ADD_FAILURE() << job.to_string() << "\n  " << outcome.failure
                  << "\n  again: FLEET_SIM_SEED=" << seed;
  }
  if (one == nullptr) {
    EXPECT_GT(lost_lanes, 1000U) << "the networks are not bad enough";
  }
}

// Long enough that faults at these moments hit it at work.
SimJob long_job(uint64_t seed) {
  SimJob job;
  job.seed = seed;
  job.workers = 2 + static_cast<uint32_t>(seed % 2);
  job.servers = 1 + static_cast<uint32_t>(seed % 3);
  job.exchanges = static_cast<uint32_t>(seed % 5) / 2;
  job.steps = 400;
  job.reconnect_grace = std::chrono::milliseconds(250);
  job.heartbeat_timeout = std::chrono::seconds(10);
  return job;
}

void expect_culprit_named(SimFault::Kind kind, Duration bound) {
  int hit = 0;
  Duration worst{0};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const SimJob job = long_job(seed);
    SimFault fault;
    fault.kind = kind;
    fault.server = seed % 4 < 2;
    fault.index = static_cast<uint32_t>(seed / 4) % (fault.server ? job.servers : job.workers);
    fault.moment = std::chrono::milliseconds(5 + seed * 3);
    const SimFaultOutcome outcome = run_job_with_fault(job, fault);
    if (outcome.came_too_late) continue;
    ++hit;
    worst = std::max(worst, outcome.detection);
    EXPECT_LE(outcome.detection, bound) << job.to_string() << ", " << fault.victim();
    for (const auto& [name, text] : outcome.survivors) {
      EXPECT_NE(text.find(fault.victim()), std::string::npos)
          << job.to_string() << ", " << fault.victim() << " was hit, " << name << " says: " << text;
    }
  }
  EXPECT_GT(hit, 40);
  std::printf("  %d faults, the slowest detection took %.3f s of virtual time\n", hit,
              std::chrono::duration<double>(worst).count());
}

TEST(SimClusterFault, EveryoneNamesAProcessThatIsKilled) {
  expect_culprit_named(SimFault::Kind::kKill, std::chrono::seconds(2));
}

TEST(SimClusterFault, EveryoneNamesAProcessThatStandsStill) {
  expect_culprit_named(SimFault::Kind::kPause, std::chrono::seconds(15));
}

// The first seed whose job goes wrong under the mutation.
std::optional<SimJob> first_failing(
    const std::shared_ptr<const strategies::SyncServerRules>& rules) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SimJob job = draw_job(seed);
    job.rules = rules;
    if (!run_job(job).ok()) return job;
  }
  return std::nullopt;
}

template <class Rules>
void expect_noticed() {
  const auto job = first_failing(std::make_shared<const Rules>());
  ASSERT_TRUE(job.has_value()) << "no seed notices that the protocol is broken";
  const SimOutcome once = run_job(*job);
  const SimOutcome twice = run_job(*job);
  EXPECT_FALSE(once.ok());
  EXPECT_EQ(once.failure, twice.failure) << "a failing seed must replay";
  EXPECT_EQ(once.trace_hash, twice.trace_hash);
  EXPECT_EQ(once.events, twice.events);
  std::printf("  %s\n  %s\n", job->to_string().c_str(), once.failure.c_str());
}

TEST(SimClusterMutation, DeduplicationOffIsNoticed) {
  struct Rules final : strategies::SyncServerRules {
    bool drops(bool) const override { return false; }
  };
  expect_noticed<Rules>();
}

TEST(SimClusterMutation, ABarrierCountOffByOneIsNoticed) {
  struct Rules final : strategies::SyncServerRules {
    int64_t awaited(uint32_t announced) const override { return int64_t{announced} - 1; }
  };
  expect_noticed<Rules>();
}

TEST(SimClusterMutation, APieceSummedOnArrivalIsNoticed) {
  struct Rules final : strategies::SyncServerRules {
    uint32_t place(uint32_t, uint32_t arrived) const override { return arrived; }
  };
  expect_noticed<Rules>();
}

// A step's time beyond its compute is the way there and back, however many workers there are: no
// part of the protocol takes turns.
TEST(SimClusterLaw, StepsOfManyWorkersTakeTheirComputeAndOneRoundTrip) {
  constexpr Duration kCompute = std::chrono::milliseconds(20);
  for (const uint32_t workers : {16U, 64U, 512U}) {
    SimJob job;
    job.workers = workers;
    job.servers = 4;
    job.steps = workers > 100 ? 6 : 20;
    job.slices = {3, 5, 2, 4};
    job.compute = kCompute;
    const SimOutcome outcome = run_job(job);
    ASSERT_TRUE(outcome.ok()) << outcome.failure;
    const double share = std::chrono::duration<double>(kCompute) / outcome.step_time;
    std::printf("  %u workers: %.3f of a step is compute\n", workers, share);
    EXPECT_GT(share, 0.9);
    EXPECT_LT(share, 1.0);
  }
}

SimJob job_of(uint32_t workers, uint32_t servers) {
  SimJob job;
  job.workers = workers;
  job.servers = servers;
  job.slices.assign(servers, 2);
  job.steps = 3;
  return job;
}

TEST(SimClusterLaw, FiveHundredWorkersTrainWithAHundredServers) {
  const SimOutcome outcome = run_job(job_of(500, 100));
  EXPECT_TRUE(outcome.ok()) << outcome.failure;
}

TEST(SimClusterLaw, FiveHundredWorkersAndAHundredServersNameTheOneThatIsLost) {
  SimJob job = job_of(500, 100);
  job.reconnect_grace = std::chrono::milliseconds(250);
  job.compute = std::chrono::seconds(2);
  SimFault fault;
  fault.index = 137;
  fault.moment = std::chrono::seconds(3);
  const SimFaultOutcome outcome = run_job_with_fault(job, fault);
  ASSERT_FALSE(outcome.came_too_late);
  EXPECT_EQ(outcome.survivors.size(), 599U);
  for (const auto& [name, text] : outcome.survivors) {
    EXPECT_NE(text.find(fault.victim()), std::string::npos) << name << " says: " << text;
  }
}

// Links of 16 KiB a round trip each way. Behind the gradients, values would begin to come when all
// have left.
TEST(SimClusterLaw, ValuesComeWhileOtherGradientsLeave) {
  SimJob job;
  job.steps = 4;
  job.slices = {64 * 1024, 64 * 1024, 64 * 1024, 64 * 1024, 64 * 1024, 64 * 1024, 64 * 1024};
  job.faults.delay_min = job.faults.delay_max = std::chrono::microseconds(100);
  job.faults.pipe_bytes = 16 * 1024;
  const SimOutcome apart = run_job(job);
  ASSERT_TRUE(apart.ok()) << apart.failure;
  job.separate_get_bytes = std::numeric_limits<size_t>::max();
  const SimOutcome behind = run_job(job);
  ASSERT_TRUE(behind.ok()) << behind.failure;
  const double share = std::chrono::duration<double>(apart.step_time) / behind.step_time;
  std::printf("  a step takes %.2f of what it takes behind the gradients\n", share);
  EXPECT_LT(share, 0.8);
}

// Longer than every deadline but stall_deadline, while the others wait in requests that have no
// answer: heartbeats and pings say that all live.
TEST(SimClusterLaw, AnEvaluationOfFourMinutesKillsNothing) {
  SimJob job;
  job.workers = 3;
  job.steps = 2;
  job.compute = std::chrono::milliseconds(10);
  job.straggle = 24000;
  job.heartbeat_timeout = std::chrono::seconds(10);
  const SimOutcome outcome = run_job(job);
  EXPECT_TRUE(outcome.ok()) << outcome.failure;
  EXPECT_GE(outcome.step_time, std::chrono::minutes(2));  // the mean
}

}  // namespace
}  // namespace fleet::testing
