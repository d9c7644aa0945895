// Every optimizer, schedule and average under every mode, over random programs: one worker computes
// what one machine does, and of several nothing is lost. Synchronous jobs are in
// every_rule_test.cc.

#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "tests/fleet/by_hand.h"
#include "tests/fleet/drawn_rules.h"
#include "tests/fleet/rank_threads.h"
#include "tests/fleet/update_rules.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/sparse_net.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;
using strategies::AsyncEvent;
using strategies::AsyncOptions;
using strategies::DelayCompensation;
using strategies::DelayCompensationOptions;

constexpr int kSteps = 6;
constexpr uint32_t kInterval = 2;  // steps between two exchanges

std::vector<UpdateRule> all_rules() {
  std::vector<UpdateRule> rules = optimizer_rules();
  for (auto& more : {clip_rules(), schedule_rules(), average_rules(), lookahead_rules()}) {
    rules.insert(rules.end(), more.begin(), more.end());
  }
  return rules;
}

// Each rule has programs of its own.
class RuleTest : public ::testing::TestWithParam<UpdateRule> {
 protected:
  static RandomProgram program(uint64_t number) {
    uint64_t seed = number;
    for (const char letter : GetParam().name) seed = mix64(seed + static_cast<uint64_t>(letter));
    return {seed, fluid::DType::kFloat32, GetParam().minimize};
  }
};

AsyncThreadOutcome run(const TrainingTask& task, const AsyncOptions& options, int workers) {
  AsyncThreadJob job;
  job.workers = workers;
  job.options = options;
  AsyncThreadOutcome outcome = train_async_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  return outcome;
}

// Servers update.
class EveryServerMode : public RuleTest {};
// Workers update themselves.
class EveryWorkerMode : public RuleTest {};

std::map<std::string, AsyncOptions> modes_in_step() {
  std::map<std::string, AsyncOptions> modes = {
      {"async", {.independent_recv = false}},
      {"half async", {.mode = ServerMode::kHalfAsync}},
      {"bounded staleness", {.staleness_bound = 1}},
  };
  for (const auto form : {DelayCompensation::kPaddle, DelayCompensation::kConstant,
                          DelayCompensation::kAdaptive, DelayCompensation::kClipped}) {
    modes[str_cat("compensation ", to_string(form))] = {
        .independent_recv = false, .delay_compensation = DelayCompensationOptions::preset(form)};
  }
  return modes;
}

// What the servers have, parameters and states.
AsyncThreadOutcome expect_bits(const TrainingTask& task, const AsyncOptions& options,
                               const LocalOutcome& local) {
  AsyncThreadOutcome outcome = run(task, options, 1);
  EXPECT_EQ(outcome.losses[0], local.losses);
  EXPECT_FALSE(outcome.persistables.empty());
  for (const auto& [variable, bytes] : outcome.persistables) {
    EXPECT_TRUE(local.persistables.at(variable) == bytes) << variable;
  }
  for (const auto& [parameter, bytes] : local.parameters) {
    EXPECT_TRUE(outcome.persistables.contains(parameter)) << parameter;
  }
  return outcome;
}

TEST_P(EveryServerMode, OfOneWorkerInStepHasTheBitsOfOneMachine) {
  const RandomProgram net = program(1);
  const TrainingTask task = net.task(kSteps);
  const LocalOutcome local = train_locally(task, 1);
  for (const auto& [name, options] : modes_in_step()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(expect_bits(task, options, local).parameters[0], local.parameters);
  }
}

// Of every optimizer that has rows several. A table stays on the servers.
class RandomRowRules : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomRowRules, OfOneWorkerInStepHaveTheBitsOfOneMachine) {
  Draw draw(GetParam() + 4000);
  const UpdateRule rule = draw_rule(draw, {.optimizer = static_cast<int>(GetParam() % kForRows)});
  SparseNetOptions options{.minimize = rule.minimize};
  options.kind = static_cast<RowKind>(draw.between(0, static_cast<int>(RowKind::kHsigmoid)));
  if (draw.coin()) options.padding = 3;
  SCOPED_TRACE(str_cat(rule.name, ", net ", static_cast<int>(options.kind)));
  const SparseNet net(options);
  const TrainingTask task = net.task(kSteps);
  const LocalOutcome local = train_locally(task, 1);
  for (const auto& [name, mode] : modes_in_step()) {
    // Refused for rows.
    if (mode.delay_compensation.form == DelayCompensation::kPaddle) continue;
    SCOPED_TRACE(name);
    expect_bits(task, mode, local);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRowRules,
                         ::testing::Range<uint64_t>(1, 1 + 2 * uint64_t{kForRows}));

TEST(DistributedTables, ThatDecayHaveTheBitsOfOneMachine) {
  SparseNetOptions options{.is_distributed = true};
  options.minimize = [](const fluid::Variable& loss) {
    fluid::optimizer::Adam({.learning_rate = 0.01,
                            .regularization = fluid::regularizer::L1Decay(1e-3),
                            .grad_clip = fluid::clip::GradientClipByGlobalNorm(0.05)})
        .minimize(loss);
  };
  const SparseNet net(options);
  const TrainingTask task = net.task(kSteps);
  const LocalOutcome local = train_locally(task, 1);
  for (const auto& [name, mode] : modes_in_step()) {
    if (mode.delay_compensation.form == DelayCompensation::kPaddle) continue;  // refused
    SCOPED_TRACE(name);
    expect_bits(task, mode, local);
  }
}

AsyncOptions exchanging(ServerMode mode) {
  return {.mode = mode, .geo_update_frequency = kInterval, .easgd_tau = kInterval};
}

TEST_P(EveryWorkerMode, ThatExchangesDifferencesOfOneWorkerIsItsArithmetic) {
  const RandomProgram net = program(2);
  const TrainingTask task = net.task(kSteps);
  for (const ServerMode mode : {ServerMode::kGeo, ServerMode::kEasgd}) {
    SCOPED_TRACE(to_string(mode));
    EXPECT_EQ(run(task, exchanging(mode), 1).losses,
              exchange_by_hand(task, mode, static_cast<int>(kInterval)).losses);
  }
}

// By the servers' logs: gradients [1, steps] of each worker for each slice, in order.
void expect_each_once(const AsyncThreadOutcome& outcome, uint64_t steps) {
  for (const auto& events : outcome.events) {
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> clocks;
    for (const AsyncEvent& event : events) {
      if (event.kind != AsyncEvent::Kind::kUpdate) continue;
      uint64_t& clock = clocks[{event.worker, event.variable}];
      EXPECT_EQ(event.clock, clock + event.merged);
      clock = event.clock;
    }
    for (const auto& [who, clock] : clocks) EXPECT_EQ(clock, steps);
  }
}

TEST_P(EveryServerMode, OfThreeWorkersAppliesEachGradientOnce) {
  const RandomProgram net = program(3);
  const TrainingTask task = net.task(kSteps);
  std::map<std::string, AsyncOptions> modes = modes_in_step();
  modes["async, in the background"] = {};
  modes["geo"] = exchanging(ServerMode::kGeo);
  modes["easgd"] = exchanging(ServerMode::kEasgd);
  for (const auto& [name, options] : modes) {
    SCOPED_TRACE(name);
    const bool exchanges = name == "geo" || name == "easgd";
    // Gradients are counted, and some of these jobs diverge, as their arithmetic does.
    AsyncThreadJob job;
    job.workers = 3;
    job.options = options;
    job.on_nonfinite = strategies::OnNonfinite::kWarn;
    const AsyncThreadOutcome outcome = train_async_in_threads(task, job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    expect_each_once(outcome, exchanges ? kSteps / kInterval : kSteps);
  }
}

using Losses = std::vector<std::vector<float>>;

TEST_P(EveryWorkerMode, OfRanksThatReduceGradientsHasTheBitsOfOneMachine) {
  const RandomProgram net = program(4);
  const TrainingTask task = net.task(kSteps);
  const LocalOutcome local = train_locally(task, 2);
  const Losses losses = train_in_ranks(task, {}).losses;
  EXPECT_EQ(mean_over_workers(losses), local.losses);
}

TEST_P(EveryWorkerMode, OfRanksThatAverageParametersIsItsArithmetic) {
  const RandomProgram net = program(5);
  const TrainingTask task = net.task(kSteps);
  const strategies::LocalSgdOptions options{.interval = static_cast<int>(kInterval)};
  const RankJob job{
      .config = {.mode = "collective", .collective_mode = "local_sgd", .local_sgd_scheduled = true},
      .local_sgd = options};
  const RankOutcome outcome = train_in_ranks(task, job);
  const HandOutcome expected =
      average_by_hand(task, 2, static_cast<int>(kInterval), Averaged::kParameters);
  EXPECT_EQ(outcome.losses, expected.losses);
  EXPECT_EQ(outcome.persistables, expected.persistables);
}

TEST_P(EveryWorkerMode, OfRanksThatAverageChangesIsItsArithmetic) {
  const RandomProgram net = program(6);
  const TrainingTask task = net.task(kSteps);
  const RankJob job{.config = {.mode = "collective",
                               .collective_mode = "local_sgd",
                               .local_sgd_scheduled = false}};
  const RankOutcome outcome = train_in_ranks(task, job);
  const HandOutcome expected = average_by_hand(task, 2, 1, Averaged::kChanges);
  EXPECT_EQ(outcome.losses, expected.losses);
  EXPECT_EQ(outcome.persistables, expected.persistables);
}

INSTANTIATE_TEST_SUITE_P(Rules, EveryServerMode, ::testing::ValuesIn(all_rules()), name_of);
INSTANTIATE_TEST_SUITE_P(Rules, EveryWorkerMode, ::testing::ValuesIn(all_rules()), name_of);

std::string refusal_of(const fluid::Program& main, const fluid::Program& startup) {
  transpiler::DistributeTranspiler transpiler;
  try {
    transpiler.transpile({.trainer_id = 0,
                          .program = &main,
                          .pservers = "127.0.0.1:6174",
                          .trainers = 2,
                          .startup_program = &startup});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ServersThatUpdate, RefuseAStepThatChangesParametersBehindTheUpdates) {
  const RandomProgram net(1, fluid::DType::kFloat32, [](const fluid::Variable& loss) {
    fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
    fluid::Program& main = loss.program();
    const fluid::RoleGuard role(main, fluid::OpRole::kOptimize);
    fluid::Block& block = main.global_block();
    const fluid::Variable weight(block, block.var("fc_0.w_0"));
    fluid::layers::assign(weight * 0.5, weight);
  });
  const TrainingTask task = net.task(1);
  const std::string text = refusal_of(*task.main, *task.startup);
  EXPECT_NE(text.find("an op after the updates writes"), std::string::npos) << text;
  EXPECT_NE(text.find("variable 'fc_0.w_0'"), std::string::npos) << text;
}

TEST(ServersThatUpdate, RefuseTheAverageOfATableOfTheirs) {
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const auto ids = fluid::layers::data("ids", {1}, fluid::DType::kInt64);
  const auto rows =
      fluid::layers::embedding(ids, {100, 8}, {.is_sparse = true, .param_attr = {.name = "table"}});
  average_rules().front().minimize(fluid::layers::mean(rows));
  const std::string text = refusal_of(main, startup);
  EXPECT_NE(text.find("variable 'table'"), std::string::npos) << text;
  EXPECT_NE(text.find("is_sparse"), std::string::npos) << text;
}

}  // namespace
}  // namespace fleet::testing
