#include "fluid/executor/compiled_program.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "fluid/executor/parallel_executor.h"
#include "fluid/ops/grad_names.h"
#include "tests/fluid/executor/mlp.h"

namespace fleet::fluid {
namespace {

using testing::batch;
using ::testing::HasSubstr;
using testing::Mlp;
using Scale = BuildStrategy::GradientScaleStrategy;

constexpr int kSteps = 5;
constexpr int64_t kRows = 16;

std::vector<float> parameters_of(const Scope& scope, const Mlp& net) {
  std::vector<float> all;
  for (const VarDesc* parameter : net.main.global_block().parameters()) {
    const auto values = scope.tensor(parameter->name).values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

std::vector<float> train_plainly(int shards, double rate = 0.1) {
  const Mlp net(7, rate);
  Executor exe(CPUPlace(), {.logical_shards = shards, .threads = 1});
  exe.run(net.startup);
  for (uint64_t step = 0; step < kSteps; ++step) exe.run(net.main, batch(kRows, step));
  return parameters_of(exe.scope(), net);
}

std::vector<float> train_compiled(DataParallelOptions options, double rate = 0.1,
                                  const std::vector<float>& loss_gradient = {}) {
  const Mlp net(7, rate);
  Executor exe(CPUPlace(), {.threads = 2});
  exe.run(net.startup);
  auto compiled = CompiledProgram(net.main).with_data_parallel(net.cost, std::move(options));
  for (uint64_t step = 0; step < kSteps; ++step) {
    Feed feed = batch(kRows, step);
    if (!loss_gradient.empty()) {
      const auto count = static_cast<int64_t>(loss_gradient.size());
      feed.emplace_back(grad_name(net.cost), Tensor::from(loss_gradient, {count}));
    }
    exe.run(compiled, feed, {net.cost});
  }
  return parameters_of(exe.scope(), net);
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << i;
}

TEST(CompiledProgram, ReplicasAreTheLogicalShardsOfAStep) {
  EXPECT_EQ(train_compiled({}), train_plainly(2));
  EXPECT_EQ(train_compiled({.places = {CPUPlace(), CPUPlace(), CPUPlace(), CPUPlace()}}),
            train_plainly(4));
  EXPECT_EQ(train_compiled(
                {.build_strategy = {.reduce_strategy = BuildStrategy::ReduceStrategy::kReduce}}),
            train_plainly(2));
  EXPECT_NE(train_plainly(2), train_plainly(4));
}

TEST(CompiledProgram, AThreadCountChangesNoBit) {
  EXPECT_EQ(train_compiled({.exec_strategy = {.num_threads = 1}}), train_plainly(2));
}

TEST(CompiledProgram, GradientsAreAddedUpWithScaleOne) {
  // Twice the mean of two replicas, so half the rate.
  expect_near(train_compiled({.build_strategy = {.gradient_scale_strategy = Scale::kOne}}, 0.05),
              train_plainly(2));
}

TEST(CompiledProgram, CustomizedGradientsOfTheLossAreFed) {
  const DataParallelOptions fed{.build_strategy = {.gradient_scale_strategy = Scale::kCustomized}};
  EXPECT_EQ(train_compiled(fed, 0.1, {0.5f, 0.5f}), train_plainly(2));
  EXPECT_NE(train_compiled(fed, 0.1, {1.0f, 0.0f}), train_plainly(2));
  EXPECT_THROW(train_compiled(fed), ProgramError);
}

TEST(CompiledProgram, FetchesOfReplicasAreJoined) {
  const Mlp net;
  Executor exe(CPUPlace(), {.threads = 2});
  exe.run(net.startup);
  auto compiled = CompiledProgram(net.main).with_data_parallel(net.cost);
  const auto made = exe.run(compiled, batch(kRows, 0), {net.cost, net.probability});
  EXPECT_EQ(made[0].shape(), (Shape{2}));
  EXPECT_EQ(made[1].shape(), (Shape{kRows, 2}));
  // The plain program of the same executor still gives one loss.
  EXPECT_EQ(exe.run(net.main, batch(kRows, 0), {net.cost})[0].numel(), 1);
}

TEST(CompiledProgram, AProgramThatTestsIsCutToo) {
  const Mlp net;
  Executor exe(CPUPlace(), {.threads = 2});
  exe.run(net.startup);
  const Program test = net.main.clone(true).prune(std::vector<std::string>{net.cost});
  auto compiled = CompiledProgram(test).with_data_parallel();
  const auto losses = exe.run(compiled, batch(kRows, 0), {net.cost})[0];
  ASSERT_EQ(losses.shape(), (Shape{2}));
  const float whole = exe.run(test, batch(kRows, 0), {net.cost})[0].item<float>();
  EXPECT_NEAR((losses.values<float>()[0] + losses.values<float>()[1]) / 2, whole, 1e-6);
  EXPECT_NE(losses.values<float>()[0], losses.values<float>()[1]);
}

TEST(CompiledProgram, WithoutDataParallelismItIsTheProgram) {
  const Mlp net;
  Executor exe(CPUPlace(), {.threads = 2});
  exe.run(net.startup);
  CompiledProgram compiled(net.main);
  EXPECT_EQ(exe.run(compiled, batch(kRows, 0), {net.cost})[0].numel(), 1);
}

TEST(CompiledProgram, ARunMayTakeSeveralSteps) {
  const Mlp net;
  const auto train = [&net](int iterations, int runs) {
    Executor exe(CPUPlace(), {.threads = 2});
    exe.run(net.startup);
    auto compiled = CompiledProgram(net.main).with_data_parallel(
        net.cost, {.exec_strategy = {.num_iteration_per_run = iterations}});
    for (int run = 0; run < runs; ++run) exe.run(compiled, batch(kRows, 0), {net.cost});
    return parameters_of(exe.scope(), net);
  };
  EXPECT_EQ(train(3, 2), train(1, 6));
  EXPECT_NE(train(3, 2), train(1, 2));
}

TEST(CompiledProgram, HintsAreLoggedOnce) {
  const Mlp net;
  std::vector<std::string> lines;
  const Logger logger(LogLevel::kInfo,
                      [&lines](LogLevel, std::string_view line) { lines.emplace_back(line); });
  CompiledProgram(net.main).with_data_parallel(
      net.cost,
      {.build_strategy = {.fuse_all_reduce_ops = true, .enable_inplace = false}, .logger = logger});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("fuse_all_reduce_ops,enable_inplace"));
  CompiledProgram(net.main).with_data_parallel(net.cost, {.logger = logger});
  EXPECT_EQ(lines.size(), 1u);
}

std::string refusal(const std::string& loss, DataParallelOptions options) {
  const Mlp net;
  try {
    CompiledProgram(net.main).with_data_parallel(loss == "cost" ? net.cost : loss,
                                                 std::move(options));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CompiledProgram, WhatCannotBeUsedIsRefusedByName) {
  EXPECT_THAT(refusal("cost", {.build_strategy = {.async_mode = true}}),
              HasSubstr("BuildStrategy.async_mode"));
  EXPECT_THAT(refusal("cost", {.build_strategy = {.num_trainers = 2, .trainer_id = 2}}),
              HasSubstr("BuildStrategy.trainer_id"));
  EXPECT_THAT(refusal("cost", {.build_strategy = {.num_trainers = 4,
                                                  .use_hierarchical_allreduce = true,
                                                  .hierarchical_allreduce_inter_nranks = 3}}),
              HasSubstr("hierarchical_allreduce_inter_nranks"));
  EXPECT_THAT(refusal("cost", {.exec_strategy = {.num_iteration_per_run = 0}}),
              HasSubstr("ExecutionStrategy.num_iteration_per_run"));
  EXPECT_THAT(refusal("", {}), HasSubstr("its loss is not named"));
  EXPECT_THAT(refusal("other", {}), HasSubstr("'other'"));
}

TEST(CompiledProgram, SeveralTrainersNeedAJob) {
  const Mlp net;
  Executor exe(CPUPlace(), {.threads = 2});
  exe.run(net.startup);
  auto compiled = CompiledProgram(net.main).with_data_parallel(
      net.cost, {.build_strategy = {.num_trainers = 2}});
  try {
    exe.run(compiled, batch(kRows, 0), {net.cost});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("strategies::attach"));
  }
}

TEST(CompiledProgram, AnUnevenBatchIsNamed) {
  const Mlp net;
  Executor exe(CPUPlace(), {.threads = 2});
  exe.run(net.startup);
  auto compiled = CompiledProgram(net.main).with_data_parallel(net.cost);
  EXPECT_THROW(exe.run(compiled, batch(3, 0), {net.cost}), Error);
}

TEST(ParallelExecutor, TrainsAndTestsOnOneScope) {
  Mlp net;
  Executor exe(CPUPlace(), {.logical_shards = 2});
  exe.run(net.startup);
  ParallelExecutor train({.loss_name = net.cost,
                          .main_program = &net.main,
                          .exec_strategy = {.num_threads = 2},
                          .scope = &exe.scope()});
  const Program test = net.main.clone(true).prune(std::vector<std::string>{net.cost});
  ParallelExecutor tests({.main_program = &test, .share_vars_from = &train});
  const float before = tests.run({net.cost}, batch(kRows, 0))[0].values<float>()[0];
  for (uint64_t step = 0; step < kSteps; ++step) train.run({net.cost}, batch(kRows, 0));
  EXPECT_LT(tests.run({net.cost}, batch(kRows, 0))[0].values<float>()[0], before);
}

TEST(ParallelExecutor, NeedsAScope) {
  const Mlp net;
  EXPECT_THROW(ParallelExecutor({.loss_name = net.cost, .main_program = &net.main}), UsageError);
}

}  // namespace
}  // namespace fleet::fluid
