// Jobs that save and are started again, with every fault that virtual time can bring
// (tests/testing/virtual_time/checkpoint_sim.h says what is held against them).
#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "base/hash.h"
#include "base/strings.h"
#include "tests/testing/virtual_time/checkpoint_sim.h"

namespace fleet {
namespace {

using namespace testing;  // NOLINT: the simulation

// Of both, in all tests of a mode.
const CheckpointPrograms& programs_of(SimMode mode) {
  static std::map<SimMode, CheckpointPrograms> made;
  const auto found = made.find(mode);
  return found != made.end() ? found->second : made.emplace(mode, mode).first->second;
}

class VirtualTime : public ::testing::TestWithParam<SimMode> {
 protected:
  const CheckpointPrograms& programs() const { return programs_of(GetParam()); }
  CheckpointSimOutcome run(const CheckpointSim& sim) const {
    return run_checkpoint_sim(programs(), sim);
  }
  // False: it was wrong.
  bool expect_right(const CheckpointSim& sim) const {
    const CheckpointSimOutcome outcome = run(sim);
    EXPECT_EQ(outcome.failure, "") << to_string(GetParam()) << ", " << sim.to_string();
    return outcome.ok();
  }
};

TEST_P(VirtualTime, AnUndisturbedJobSavesAndEndsRight) {
  const CheckpointSimOutcome outcome = run({.seed = 1});
  EXPECT_EQ(outcome.failure, "");
  EXPECT_EQ(outcome.points.size(), 1U);
  EXPECT_GE(outcome.saves, 2);
}

TEST_P(VirtualTime, TheSameSeedGivesTheSameRun) {
  const CheckpointSim sim{.seed = 7, .crashes = {{.process = "worker 0", .point = 60}}};
  const CheckpointSimOutcome first = run(sim);
  const CheckpointSimOutcome again = run(sim);
  EXPECT_EQ(first.trace_hash, again.trace_hash);
  EXPECT_EQ(first.points, again.points);
  EXPECT_NE(first.trace_hash,
            run({.seed = 8, .crashes = {{.process = "worker 0", .point = 60}}}).trace_hash);
}

TEST_P(VirtualTime, EveryCrash) {
  int wrong = 0;
  CheckpointSim sim{.seed = 2, .steps = 4, .keep = 1};
  const CheckpointSimOutcome undisturbed = run(sim);
  for (const auto& [process, points] : undisturbed.points.front()) {
    for (uint64_t point = 0; point < points && wrong < 5; ++point) {
      for (const bool power : {false, true}) {
        sim.crashes = {{0, process, point, power}};
        wrong += expect_right(sim) ? 0 : 1;
      }
    }
  }
}

TEST_P(VirtualTime, EveryCrashWhileTheJobGoesOnAfterOne) {
  int wrong = 0;
  const std::string victim = str_cat("worker ", programs().workers() - 1);
  CheckpointSim sim{.seed = 3, .steps = 4, .keep = 1};
  // Behind the first checkpoint, which is later where workers ask each other for it.
  const uint64_t all = run(sim).points.front().at(victim);
  const uint64_t late = in_step(GetParam()) ? all * 3 / 4 : all * 9 / 10;
  sim.crashes = {{.process = victim, .point = late}};
  const CheckpointSimOutcome once = run(sim);
  ASSERT_EQ(once.points.size(), 2U);
  EXPECT_EQ(once.resumes, 1);
  for (const auto& [process, points] : once.points.back()) {
    for (uint64_t point = 0; point < points && wrong < 5; ++point) {
      sim.crashes = {{.process = victim, .point = late}, {1, process, point, point % 2 == 1}};
      wrong += expect_right(sim) ? 0 : 1;
    }
  }
}

// Servers write and read rows of one variable.
TEST(VirtualTimePrograms, OfSynchronousServersAreCut) {
  const CheckpointPrograms& programs = programs_of(SimMode::kSync);
  for (int server = 0; server < programs.servers(); ++server) {
    const auto vars = programs.server(server).main.global_block().vars();
    EXPECT_TRUE(std::any_of(vars.begin(), vars.end(), [](const fluid::VarDesc* var) {
      return var->slice.has_value();
    })) << server;
  }
}

// Faults of a seed. Points that a process does not come to do no harm.
CheckpointSim draw(SimMode mode, const CheckpointSimOutcome& undisturbed, uint64_t seed) {
  uint64_t state = mix64(seed);
  const auto below = [&state](uint64_t bound) {
    state = mix64(state);
    return state % bound;
  };
  CheckpointSim sim{.seed = seed};
  sim.steps = 4 + static_cast<int64_t>(below(5));
  sim.longer = mode == SimMode::kAsync || mode == SimMode::kHalfAsync || mode == SimMode::kDcAsgd
                   ? static_cast<int64_t>(below(2) * below(5))
                   : 0;
  sim.every_steps = 1 + static_cast<int64_t>(below(3));
  sim.keep = 1 + static_cast<int>(below(3));
  const int attempts = 1 + static_cast<int>(below(3));
  for (int attempt = 0; attempt < attempts; ++attempt) {
    const uint64_t at_once = 1 + below(4) / 3;
    for (uint64_t i = 0; i < at_once; ++i) {
      const auto& points = undisturbed.points.front();
      const auto victim =
          std::next(points.begin(), static_cast<std::ptrdiff_t>(below(points.size())));
      const bool early = attempt > 0 && below(2) == 0;
      sim.crashes.push_back({attempt, victim->first,
                             below(early ? victim->second / 2 : victim->second), below(4) == 0});
    }
  }
  if (below(4) == 0) sim.every = std::chrono::microseconds(1 + below(500));
  if (below(3) == 0) sim.disk_slowness = std::chrono::microseconds(1 + below(20'000));
  if (mode == SimMode::kLocal && below(4) == 0) {
    // Behind the first checkpoint, without which there is none to go on from.
    sim.nan_from = sim.every_steps + 1 + static_cast<int64_t>(below(4));
    return sim;
  }
  if (below(6) == 0) sim.room = below(5'000);
  sim.flips = below(3) == 0;
  return sim;
}

// FLEET_SIM_SEEDS: how many; FLEET_SIM_SEED: that one only.
TEST_P(VirtualTime, Seeds) {
  const char* one = std::getenv("FLEET_SIM_SEED");
  const char* many = std::getenv("FLEET_SIM_SEEDS");
  const uint64_t begin = one == nullptr ? 0 : std::strtoull(one, nullptr, 10);
  const uint64_t count = many == nullptr ? 500 : std::strtoull(many, nullptr, 10);
  const uint64_t end = one == nullptr ? count : begin + 1;
  const CheckpointSimOutcome undisturbed = run({.seed = 0});
  int failures = 0;
  CheckpointSimOutcome all;
  for (uint64_t seed = begin; seed < end && failures < 5; ++seed) {
    const CheckpointSim sim = draw(GetParam(), undisturbed, seed);
    const CheckpointSimOutcome outcome = run(sim);
    all.flips_said += outcome.flips_said;
    all.resumes += outcome.resumes;
    all.early_crashes += outcome.early_crashes;
    all.failed_saves += outcome.failed_saves;
    all.saves += outcome.saves;
    if (outcome.ok()) continue;
    ++failures;
    ADD_FAILURE() << to_string(GetParam()) << ", " << sim.to_string() << "\n  " << outcome.failure
                  << "\n  again: FLEET_SIM_SEED=" << seed;
  }
  RecordProperty("saves", all.saves);
  RecordProperty("resumes", all.resumes);
  RecordProperty("early_crashes", all.early_crashes);
  RecordProperty("flips_said", all.flips_said);
  RecordProperty("failed_saves", all.failed_saves);
  if (one != nullptr || failures > 0) return;
  // The faults were there.
  for (const int faults : {all.resumes, all.early_crashes, all.flips_said, all.failed_saves}) {
    EXPECT_GT(faults, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, VirtualTime,
                         ::testing::Values(SimMode::kLocal, SimMode::kSync, SimMode::kRanks,
                                           SimMode::kAsync, SimMode::kHalfAsync, SimMode::kDcAsgd,
                                           SimMode::kGeo, SimMode::kGeoOften, SimMode::kEasgd,
                                           SimMode::kLocalSgd),
                         [](const auto& mode) { return std::string(to_string(mode.param)); });

}  // namespace
}  // namespace fleet
