// The facade by the names and calls of Paddle Fluid's documents, in every role; nothing connects.
#include <functional>
#include <gmock/gmock.h>
#include <map>
#include <set>

#include "base/error.h"
#include "fleet/fleet.h"
#include "fluid/layers/layers.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "fluid/program/default_programs.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string, std::less<>>;

// Of a net that each makes anew.
struct Net {
  fluid::Program main;
  fluid::Program startup;
  fluid::ProgramGuard programs{main, startup};
  fluid::unique_name::Guard names;
  fluid::Variable loss = fluid::layers::mean(fluid::layers::fc(fluid::layers::data("x", {4}), 3));
  fluid::optimizer::SGD sgd{{.learning_rate = 0.1}};
  Fleet fleet{Environment(Variables{{"FLEET_JOB_SECRET", "0123456789abcdef0123456789abcdef"}})};

  explicit Net(role_maker::Role role) {
    role_maker::UserDefinedRoleMaker maker(
        {.role = role, .worker_num = 2, .server_endpoints = {"127.0.0.1:1", "127.0.0.1:2"}});
    fleet.init(maker);
  }
  std::string programs_text() const {
    return fleet.main_program().to_string() + fleet.startup_program().to_string();
  }
};

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Facade, MinimizeInTwoPartsGivesTheSamePrograms) {
  for (const auto role : {role_maker::Role::kWorker, role_maker::Role::kServer}) {
    std::string at_once;
    {
      Net net(role);
      net.fleet.distributed_optimizer(net.sgd).minimize(net.loss);
      at_once = net.programs_text();
    }
    Net net(role);
    auto optimizer = net.fleet.distributed_optimizer(net.sgd);
    const auto params_grads = optimizer.backward(net.loss);
    ASSERT_EQ(params_grads.size(), 2u);
    EXPECT_EQ(params_grads.front().grad.name(), params_grads.front().param.name() + "@GRAD");
    optimizer.apply_gradients(params_grads);
    EXPECT_EQ(net.programs_text(), at_once);
    EXPECT_EQ(&fluid::default_main_program(), &net.fleet.main_program());
    EXPECT_EQ(&fluid::default_startup_program(), &net.fleet.startup_program());
    EXPECT_EQ(&net.fleet.origin_program(), &net.main);
    EXPECT_EQ(&net.fleet.origin_startup_program(), &net.startup);
  }
}

TEST(Facade, GradientsMayBeChangedBetweenTheParts) {
  Net net(role_maker::Role::kWorker);
  auto optimizer = net.fleet.distributed_optimizer(net.sgd);
  const auto params_grads = optimizer.backward(net.loss);
  const auto chosen = params_grads.front();
  optimizer.apply_gradients({chosen});
  std::set<std::string> placed;
  for (const auto& row : net.fleet.main_program().distribution().vars) placed.insert(row.origin);
  EXPECT_THAT(placed, ::testing::ElementsAre(chosen.param.name()));
}

// A net of two layers whose first one may be computed again, as a collective job of one rank.
struct RecomputingNet {
  fluid::Program main;
  fluid::Program startup;
  fluid::ProgramGuard programs{main, startup};
  fluid::unique_name::Guard names;
  fluid::Variable first = fluid::layers::fc(fluid::layers::data("x", {4}), 3, {.act = "tanh"});
  fluid::Variable second = fluid::layers::fc(first, 3, {.act = "tanh"});
  fluid::Variable loss = fluid::layers::mean(fluid::layers::fc(second, 2, {.act = "tanh"}));
  fluid::optimizer::SGD sgd{{.learning_rate = 0.1}};
  Fleet fleet{Environment(Variables{})};

  RecomputingNet() {
    startup.set_random_seed(3);
    role_maker::UserDefinedCollectiveRoleMaker maker({.worker_endpoints = {"127.0.0.1:1"}});
    fleet.init(maker);
  }
  bool recomputes() const {
    return fleet.main_program().to_string().find(".subprog_") != std::string::npos;
  }
  std::vector<float> trained(const strategies::DistributedStrategy& strategy) {
    fleet.distributed_optimizer(sgd, strategy).minimize(loss);
    fluid::Executor exe{fluid::CPUPlace()};
    fleet.init_worker();
    exe.run(fleet.startup_program());
    const std::vector<float> x = {1, 2, 3, 4, -1, 0.5, 2, -3};
    std::vector<float> losses;
    for (int step = 0; step < 3; ++step) {
      const auto fetched = exe.run(fleet.main_program(),
                                   {{"x", fluid::Tensor::from(x, fluid::Shape{2, 4})}}, {loss});
      losses.push_back(*fetched[0].data<float>());
    }
    fleet.stop_worker();
    return losses;
  }
};

TEST(Facade, AStrategyNamesWhatBackwardKeeps) {
  const auto plain = RecomputingNet().trained(strategies::GradAllReduceStrategy{});
  for (const bool averages : {false, true}) {
    RecomputingNet net;
    EXPECT_EQ(net.trained(strategies::collective::DistributedStrategy{
                  .use_local_sgd = averages,
                  .forward_recompute = true,
                  .recompute_checkpoints = {net.first.name(), net.second.name()}}),
              plain);
    EXPECT_TRUE(net.recomputes());
  }
}

TEST(Facade, AStrategyTrainsInMixedPrecision) {
  RecomputingNet decorated;
  auto mixed = fluid::mixed_precision::decorate(decorated.sgd);
  decorated.fleet.distributed_optimizer(mixed, strategies::GradAllReduceStrategy{})
      .minimize(decorated.loss);
  for (const bool averages : {false, true}) {
    RecomputingNet net;
    const auto losses = net.trained(
        strategies::collective::DistributedStrategy{.use_local_sgd = averages, .use_amp = true});
    EXPECT_LT(losses.back(), losses.front());
    EXPECT_EQ(net.fleet.origin_program().to_string(), decorated.fleet.origin_program().to_string());
  }
}

TEST(Facade, AStrategyDoesNotDecorateTwice) {
  RecomputingNet net;
  auto mixed = fluid::mixed_precision::decorate(net.sgd);
  auto optimizer = net.fleet.distributed_optimizer(
      mixed, strategies::collective::DistributedStrategy{.use_amp = true});
  EXPECT_THAT(refusal([&] { optimizer.minimize(net.loss); }), HasSubstr("decorated already"));
}

TEST(Facade, AStrategySynchronisesBatchNorms) {
  for (const bool sync : {false, true}) {
    RecomputingNet net;
    const auto normal = fluid::layers::mean(fluid::layers::batch_norm(net.second));
    net.fleet
        .distributed_optimizer(net.sgd,
                               strategies::collective::DistributedStrategy{.sync_batch_norm = sync})
        .minimize(normal);
    const std::string text = net.fleet.main_program().to_string();
    EXPECT_EQ(text.find("= sync_batch_norm(") != std::string::npos, sync);
    EXPECT_EQ(text.find("= shard_sum(") != std::string::npos, sync);
    EXPECT_EQ(net.fleet.origin_program().to_string().find("sync_"), std::string::npos);
  }
}

TEST(Facade, CheckpointsOfTheStrategyAndOfMinimizeMayNotDiffer) {
  RecomputingNet net;
  const strategies::GradAllReduceStrategy strategy{.recompute_checkpoints = {net.first.name()}};
  auto optimizer = net.fleet.distributed_optimizer(net.sgd, strategy);
  EXPECT_THAT(refusal([&] { optimizer.minimize(net.loss, {.checkpoints = {net.second.name()}}); }),
              HasSubstr("two places name different checkpoints"));
  optimizer.minimize(net.loss, {.checkpoints = {net.first.name()}});
  EXPECT_TRUE(net.recomputes());
}

TEST(Facade, ProgramsAreRewrittenOnce) {
  Net net(role_maker::Role::kWorker);
  auto optimizer = net.fleet.distributed_optimizer(net.sgd);
  EXPECT_THAT(refusal([&] { net.fleet.main_program(); }), HasSubstr("no rewritten programs yet"));
  EXPECT_THAT(refusal([&] { optimizer.apply_gradients({}); }), HasSubstr("no gradients to apply"));
  const auto params_grads = optimizer.backward(net.loss);
  optimizer.apply_gradients(params_grads);
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { optimizer.minimize(net.loss); }, [&] { optimizer.backward(net.loss); },
           [&] { optimizer.apply_gradients(params_grads); }}) {
    EXPECT_THAT(refusal(call), HasSubstr("have been rewritten before"));
  }
}

// A startup program that is not the thread's default one is the one that is rewritten.
TEST(Facade, TheStartupProgramMayBeGiven) {
  Net net(role_maker::Role::kServer);
  fluid::Program other;
  const fluid::ProgramGuard programs(net.main, other);
  net.fleet.distributed_optimizer(net.sgd).minimize(net.loss, {.startup_program = &net.startup});
  EXPECT_EQ(&net.fleet.origin_startup_program(), &net.startup);
  EXPECT_GT(net.fleet.startup_program().global_block().op_count(), 0u);
}

TEST(Facade, TheDefaultFleetHasItsProgramsAsFreeFunctions) {
  role_maker::UserDefinedRoleMaker role({.worker_num = 2, .server_endpoints = {"127.0.0.1:1"}});
  fleet::init(role);
  EXPECT_THAT(refusal([] { fleet::main_program(); }), HasSubstr("main_program"));
  EXPECT_THAT(refusal([] { fleet::startup_program(); }), HasSubstr("startup_program"));
  EXPECT_THAT(refusal([] { fleet::origin_startup_program(); }),
              HasSubstr("origin_startup_program"));
}

TEST(Facade, TheTranspilerHasItsNameInNamespaceFluid) {
  Net net(role_maker::Role::kWorker);
  net.sgd.minimize(net.loss);
  fluid::DistributeTranspilerConfig config;
  config.slice_var_up = false;
  fluid::DistributeTranspiler t(config);
  t.transpile({.trainer_id = 0,
               .program = &net.main,
               .pservers = "127.0.0.1:6174,127.0.0.1:6175",
               .trainers = 1,
               .sync_mode = true});
  const auto pserver_program = t.get_pserver_program("127.0.0.1:6175");
  EXPECT_GT(t.get_startup_program("127.0.0.1:6175", &pserver_program).global_block().op_count(),
            0u);
  EXPECT_TRUE(t.get_trainer_program().distribution().is_distributed);
}

}  // namespace
}  // namespace fleet
