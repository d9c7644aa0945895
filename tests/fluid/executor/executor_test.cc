#include "fluid/executor/executor.h"

#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "base/shard_tree.h"
#include "tests/fluid/executor/mlp.h"

namespace fleet::fluid {
namespace {

using testing::batch;
using ::testing::HasSubstr;
using testing::Mlp;

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

std::vector<Tensor> parameters(Executor& executor, const Program& program) {
  std::vector<Tensor> values;
  for (const VarDesc* var : program.global_block().parameters()) {
    values.push_back(executor.scope().tensor(var->name).clone());
  }
  return values;
}

void expect_same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
}

Error error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kOk, {});
}

std::vector<Tensor> train(const Mlp& net, int steps, int shards, int64_t rows = 32) {
  Executor executor(CPUPlace(), {.logical_shards = shards});
  executor.run(net.startup);
  for (int step = 0; step < steps; ++step) {
    executor.run(net.main, batch(rows, static_cast<uint64_t>(step)), {net.cost});
  }
  return parameters(executor, net.main);
}

// Dropout draws by the number of the step.
TEST(Executor, GoesOnFromAStep) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  main.set_random_seed(3);
  const Variable dropped = layers::dropout(layers::data("x", {64}), 0.5);
  const Feed feed = {{"x", Tensor::from(std::vector<float>(64, 1), {1, 64})}};
  Executor whole;
  std::vector<std::pair<uint64_t, Executor*>> told;
  whole.set_after_run(
      main, [&told](Executor& executor, uint64_t steps) { told.emplace_back(steps, &executor); });
  std::vector<Tensor> drawn;
  for (int step = 0; step < 3; ++step) drawn.push_back(whole.run(main, feed, {dropped}).front());
  whole.run(startup);
  EXPECT_EQ(whole.steps_run(main), 3U);
  EXPECT_EQ(told,
            (std::vector<std::pair<uint64_t, Executor*>>{{1, &whole}, {2, &whole}, {3, &whole}}));
  EXPECT_FALSE(same_bits(drawn[1], drawn[2]));

  Executor rest;
  rest.set_steps_run(main, 2);
  EXPECT_TRUE(same_bits(rest.run(main, feed, {dropped}).front(), drawn[2]));
  EXPECT_EQ(rest.steps_run(main), 3U);
  whole.set_after_run(main, nullptr);
  whole.run(main, feed);
  EXPECT_EQ(told.size(), 3U);
}

TEST(Executor, RunsWhatAProgramWasAssigned) {
  const auto filled = [](double value) {
    Program program;
    const ProgramGuard programs(program, program);
    const unique_name::Guard names;
    layers::fill_constant({2}, DType::kFloat32, value);
    return program;
  };
  Executor executor;
  Program program = filled(1);
  const std::string name = program.global_block().vars().front()->name;
  EXPECT_EQ(executor.run(program, {}, {name})[0].data<float>()[0], 1);
  program = filled(2);
  EXPECT_EQ(executor.run(program, {}, {name})[0].data<float>()[0], 2);
}

TEST(Executor, TrainsTheNet) {
  const Mlp net(7, 0.5);
  Executor executor;
  executor.run(net.startup);
  double first = 0;
  double last = 0;
  for (int step = 0; step < 400; ++step) {
    last = executor.run(net.main, batch(64, static_cast<uint64_t>(step)), {net.cost})[0]
               .item<double>();
    if (step == 0) first = last;
  }
  EXPECT_NEAR(first, 0.69, 0.2);
  EXPECT_LT(last, 0.3);
}

TEST(Executor, StartedStepsGiveWhatRunsGive) {
  const Mlp net;
  for (const int shards : {1, 4}) {
    Executor waiting(CPUPlace(), {.logical_shards = shards});
    Executor ahead(CPUPlace(), {.logical_shards = shards});
    waiting.run(net.startup);
    ahead.run(net.startup);
    std::vector<StartedStep> started;
    std::vector<Tensor> wanted;
    for (int step = 0; step < 3; ++step) {
      const auto rows = batch(32, static_cast<uint64_t>(step));
      wanted.push_back(waiting.run(net.main, rows, {net.cost})[0]);
      started.push_back(ahead.start(net.main, rows, {net.cost}));
    }
    for (size_t step = 0; step < 3; ++step) expect_same(started[step].wait(), {wanted[step]});
    expect_same(parameters(ahead, net.main), parameters(waiting, net.main));
  }
}

TEST(Executor, RunsTheDefaultProgramWhenNoneIsNamed) {
  Mlp net;
  const ProgramGuard programs(net.main, net.startup);
  Executor executor;
  executor.run(default_startup_program());
  const std::string param = net.main.global_block().parameters().front()->name;
  const Tensor before = executor.scope().tensor(param).clone();
  const float first = executor.run(batch(32, 0), {net.cost})[0].item<float>();
  EXPECT_FALSE(same_bits(before, executor.scope().tensor(param)));
  Executor named;
  named.run(net.startup);
  EXPECT_EQ(named.run(net.main, batch(32, 0), {net.cost})[0].item<float>(), first);
}

TEST(Executor, RepeatsBitForBit) {
  const Mlp net;
  expect_same(train(net, 5, 1), train(net, 5, 1));
  expect_same(train(net, 5, 4), train(net, 5, 4));
}

TEST(Executor, ShardsOfAStepAgreeWithTheWholeBatch) {
  const Mlp net;
  const auto whole = train(net, 20, 1);
  const auto cut = train(net, 20, 4);
  for (size_t i = 0; i < whole.size(); ++i) {
    for (int64_t k = 0; k < whole[i].numel(); ++k) {
      ASSERT_NEAR(whole[i].data<float>()[k], cut[i].data<float>()[k], 1e-6);
    }
  }
}

TEST(Executor, TakesOtherBatchSizesInAnyOrder) {
  const Mlp net;
  Executor mixed;
  Executor plain;
  mixed.run(net.startup);
  plain.run(net.startup);
  // The same rows through a plan that has seen other sizes give the same bits.
  mixed.run(net.main.clone(true), batch(7, 0), {net.probability});
  const auto test = net.main.clone(true);
  const auto wanted = plain.run(test, batch(32, 3), {net.probability});
  for (const int64_t rows : {1, 32, 5, 64, 32, 1, 2, 3, 4, 6, 8, 9, 10, 32}) {
    const auto got = mixed.run(test, batch(rows, 3), {net.probability});
    EXPECT_EQ(got[0].shape(), (Shape{rows, 2}));
    EXPECT_TRUE(rows != 32 || same_bits(got[0], wanted[0]));
  }
}

TEST(Executor, EachRowOfTheForwardPassDependsOnItselfOnly) {
  const Mlp net;
  Executor executor;
  executor.run(net.startup);
  const auto test = net.main.clone(true);
  Feed all = batch(37, 1);
  const Tensor whole = executor.run(test, all, {net.probability})[0];
  for (int64_t i = 0; i < 37; ++i) {
    const Feed one = {{"x", all[0].second.rows(i, i + 1)}, {"y", all[1].second.rows(i, i + 1)}};
    EXPECT_TRUE(
        same_bits(executor.run(test, one, {net.probability})[0], whole.rows(i, i + 1).clone()));
  }
}

TEST(Executor, FetchesTheTreeMeanOfTheLossAndRowsOfTheRest) {
  const Mlp net;
  Executor cut(CPUPlace(), {.logical_shards = 3});
  Executor plain;
  cut.run(net.startup);
  plain.run(net.startup);
  const Feed feed = batch(12, 0);
  const auto got = cut.run(net.main, feed, {net.cost, net.probability});
  const auto test = net.main.clone(true);
  std::vector<float> losses;
  for (int64_t i = 0; i < 3; ++i) {
    const Feed part = {{"x", feed[0].second.rows(4 * i, 4 * i + 4)},
                       {"y", feed[1].second.rows(4 * i, 4 * i + 4)}};
    losses.push_back(plain.run(test, part, {net.cost})[0].item<float>());
  }
  EXPECT_EQ(got[0].shape(), (Shape{1}));
  EXPECT_EQ(got[0].item<float>(), ((losses[0] + losses[1]) + losses[2]) * (1.0f / 3));
  EXPECT_TRUE(same_bits(got[1], plain.run(test, feed, {net.probability})[0]));
}

TEST(Executor, LeavesFedTensorsAsTheyAreAndFetchedOnesToTheCaller) {
  const Mlp net;
  Executor executor;
  executor.run(net.startup);
  Feed feed = batch(8, 0);
  const Tensor before = feed[0].second.clone();
  const auto first = executor.run(net.main, feed, {net.cost, "fc_0.w_0", "x"});
  const Tensor kept = first[1].clone();
  executor.run(net.main, feed, {net.cost, "fc_0.w_0", "x"});
  EXPECT_TRUE(same_bits(feed[0].second, before));
  EXPECT_TRUE(same_bits(first[1], kept));
  EXPECT_FALSE(same_bits(executor.scope().tensor("fc_0.w_0"), kept));
  EXPECT_TRUE(feed[0].second.buffer().unique());
}

TEST(Executor, SharesPlansBetweenThreads) {
  const Mlp net;
  Executor executor;
  executor.run(net.startup);
  const auto test = net.main.clone(true);
  const Tensor wanted = executor.run(test, batch(33, 0), {net.probability})[0];
  std::vector<std::thread> threads;
  std::vector<int> equal(4, 0);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Executor mine = executor.share();
      for (int i = 0; i < 20; ++i) {
        equal[t] += same_bits(mine.run(test, batch(33, 0), {net.probability})[0], wanted);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(equal, ::testing::Each(20));
}

TEST(Executor, NoticesThatAProgramGrew) {
  Program program;
  Program startup;
  const ProgramGuard guard(program, startup);
  const unique_name::Guard names;
  const Variable x = layers::data("x", {2});
  const Variable doubled = layers::scale(x, {.scale = 2});
  Executor executor;
  const Feed feed = {{"x", Tensor::from<float>({1, 2}, {1, 2})}};
  EXPECT_EQ(executor.run(program, feed, {doubled})[0].data<float>()[1], 4);
  const Variable more = layers::scale(doubled, {.scale = 3});
  EXPECT_EQ(executor.run(program, feed, {doubled})[0].data<float>()[1], 4);
  EXPECT_EQ(executor.run(program, feed, {more})[0].data<float>()[1], 12);
}

TEST(Executor, NoticesThatAnOpChanged) {
  Program program;
  Program startup;
  const ProgramGuard guard(program, startup);
  const unique_name::Guard names;
  const Variable scaled = layers::scale(layers::data("x", {1}), {.scale = 2});
  Executor executor;
  const Feed feed = {{"x", Tensor::from<float>({3}, {1, 1})}};
  EXPECT_EQ(executor.run(program, feed, {scaled})[0].data<float>()[0], 6);
  program.global_block().op(0).attrs["scale"] = 4.0;
  EXPECT_EQ(executor.run(program, feed, {scaled})[0].data<float>()[0], 12);
  program.global_block().edit_op(0).attrs["bias"] = 1.0;
  EXPECT_EQ(executor.run(program, feed, {scaled})[0].data<float>()[0], 13);
}

TEST(Executor, SaysWhatIsWrongWithAFeed) {
  const Mlp net;
  Executor executor(CPUPlace(), {.logical_shards = 4});
  executor.run(net.startup);
  Feed feed = batch(8, 0);
  const auto code_and_text = [&](const Feed& given) {
    const Error error = error_of([&] { executor.run(net.main, given, {net.cost}); });
    return std::pair(error.code(), std::string(error.what()));
  };
  EXPECT_THAT(code_and_text({feed[0]}).second, HasSubstr("'y'"));
  EXPECT_EQ(code_and_text({feed[0]}).first, ErrorCode::kFeed);
  EXPECT_THAT(code_and_text({feed[0], {"yy", feed[1].second}}).second, HasSubstr("did you mean"));
  EXPECT_THAT(code_and_text({feed[0], {"y", feed[0].second}}).second, HasSubstr("int64"));
  const Tensor narrow = Tensor::zeros(DType::kFloat32, {8, 31});
  EXPECT_THAT(code_and_text({{"x", narrow}, feed[1]}).second, HasSubstr("[-1, 32]"));
  EXPECT_THAT(code_and_text({feed[0], {"y", Tensor()}}).second, HasSubstr("empty"));
  const auto uneven = code_and_text(batch(10, 0));
  EXPECT_EQ(uneven.first, ErrorCode::kUnevenBatch);
  EXPECT_THAT(uneven.second, HasSubstr("8 or 12"));
}

TEST(Executor, SaysWhatIsWrongWithAFetchOrAProgram) {
  const Mlp net;
  Executor executor;
  EXPECT_THAT(error_of([&] { executor.run(net.main, batch(4, 0), {net.cost}); }).what(),
              HasSubstr("startup"));
  executor.run(net.startup);
  EXPECT_THAT(error_of([&] { executor.run(net.main, batch(4, 0), {"mean_0.tmp_1"}); }).what(),
              HasSubstr("mean_0.tmp_0"));
  Program program;
  program.global_block().append_op(
      {.type = "no_such_op", .inputs = {}, .outputs = {}, .attrs = {}});
  EXPECT_EQ(error_of([&] { executor.run(program); }).code(), ErrorCode::kNotSupported);
  Program sends;
  sends.global_block().append_op(
      {.type = "send_barrier", .inputs = {}, .outputs = {}, .attrs = {}});
  EXPECT_THAT(error_of([&] { executor.run(sends); }).what(), HasSubstr("strategies::attach"));
  EXPECT_EQ(error_of([] { Executor bad(CPUPlace(), {.logical_shards = -1}); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(Executor, NamesTheOpThatMakesInfinities) {
  Program program;
  Program startup;
  const ProgramGuard guard(program, startup);
  const unique_name::Guard names;
  const Variable x = layers::data("x", {1});
  const Variable y = layers::log(x);
  const Variable z = layers::scale(y, {.scale = 2});
  Executor executor(CPUPlace(), {.check_nan_inf = true});
  const Feed feed = {{"x", Tensor::from<float>({0}, {1, 1})}};
  const Error error = error_of([&] { executor.run(program, feed, {z}); });
  EXPECT_EQ(error.code(), ErrorCode::kNumerics);
  EXPECT_THAT(error.what(), HasSubstr("log("));
  EXPECT_THAT(error.what(), HasSubstr("variable '" + y.name() + "'"));
  EXPECT_THAT(error.what(), HasSubstr("in step 0"));
}

TEST(Executor, TheEnvironmentAsksForNanAndInfiniteValuesToBeReported) {
  Program program;
  Program startup;
  const ProgramGuard guard(program, startup);
  const Variable y = layers::log(layers::data("x", {1}));
  const Feed fine = {{"x", Tensor::from<float>({1}, {1, 1})}};
  const Feed feed = {{"x", Tensor::from<float>({0}, {1, 1})}};
  Executor silent(CPUPlace());
  EXPECT_NO_THROW(silent.run(program, feed, {y}));
  setenv("FLAGS_check_nan_inf", "1", 1);
  Executor executor(CPUPlace());
  Executor told(CPUPlace(), {.check_nan_inf = false});
  setenv("FLAGS_check_nan_inf", "on", 1);
  EXPECT_THROW(Executor().run(program, feed, {y}), ProgramError);
  setenv("FLAGS_check_nan_inf", "perhaps", 1);
  EXPECT_EQ(error_of([] { Executor wrong; }).code(), ErrorCode::kEnvironment);
  unsetenv("FLAGS_check_nan_inf");
  executor.run(program, fine, {y});
  EXPECT_THAT(error_of([&] { executor.run(program, feed, {y}); }).what(), HasSubstr("in step 1"));
  EXPECT_NO_THROW(told.run(program, feed, {y}));
}

TEST(Executor, RunsABlockOnTheScopeOfAServer) {
  Program program;
  Block& block = program.add_block(0);
  for (const char* name : {"w", "w@GRAD", "rate"}) {
    VarDesc var;
    var.name = name;
    var.shape = Shape{name == std::string("rate") ? 1 : 3};
    var.persistable = name != std::string("w@GRAD");
    program.global_block().add_var(var);
  }
  block.append_op({.type = "sgd",
                   .inputs = {{"Param", {"w"}}, {"Grad", {"w@GRAD"}}, {"LearningRate", {"rate"}}},
                   .outputs = {{"ParamOut", {"w"}}},
                   .attrs = {}});
  Scope scope;
  scope.var("w") = Tensor::from<float>({1, 2, 3}, {3});
  scope.var("w@GRAD") = Tensor::from<float>({1, 1, 2}, {3});
  scope.var("rate") = Tensor::scalar(0.5f);
  Executor executor;
  executor.run_block(program, 1, scope);
  executor.run_block(program, 1, scope);
  EXPECT_THAT(scope.tensor("w").values<float>(), ::testing::ElementsAre(0, 1, 1));
  // A value that was replaced is found again.
  scope.erase("w");
  scope.var("w") = Tensor::from<float>({5, 5, 5}, {3});
  executor.run_block(program, 1, scope);
  EXPECT_THAT(scope.tensor("w").values<float>(), ::testing::ElementsAre(4.5, 4.5, 4));
}

TEST(Executor, ABlockWritesTheValuesThatTheScopeHas) {
  Program program;
  Block& block = program.add_block(0);
  block.append_op(
      {.type = "sum", .inputs = {{"X", {"g.0", "g.1"}}}, .outputs = {{"Out", {"g"}}}, .attrs = {}});
  block.append_op(
      {.type = "square", .inputs = {{"X", {"g"}}}, .outputs = {{"Out", {"own"}}}, .attrs = {}});
  Scope scope;
  scope.var("g.0") = Tensor::scalar(1.0f);
  scope.var("g.1") = Tensor::scalar(2.0f);
  scope.var("g");
  Executor executor;
  executor.run_block(program, 1, scope);
  EXPECT_EQ(scope.tensor("g").item<float>(), 3);
  EXPECT_EQ(scope.find("own"), nullptr);
}

}  // namespace
}  // namespace fleet::fluid
