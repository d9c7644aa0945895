// Conditions, loops and recurrent nets, forward and backward.
#include "tests/fluid/gradient_check.h"

namespace fleet::fluid {
namespace {

using ControlFlow = GradientCheck;

Variable index(int64_t value) {
  return layers::fill_constant({1}, DType::kInt64, static_cast<double>(value));
}

TEST_F(ControlFlow, ALoopRunsAsOftenAsItsConditionHolds) {
  const Variable limit = ids("limit", {1});
  limit.edit().shape = Shape{1};
  const Variable i = index(0);
  const Variable sum = layers::fill_constant({1}, DType::kInt64, 0);
  const Variable holds = layers::less_than(i, limit);
  layers::While loop(holds);
  loop.block([&] {
    layers::assign(sum + i, sum);
    layers::increment(i);
    layers::assign(layers::less_than(i, limit), holds);
  });
  for (const int64_t n : {5, 0, 9, 1}) {
    const Tensor result = executor_.run(main_, {{"limit", int_tensor({n}, {1})}}, {sum})[0];
    EXPECT_EQ(result.item<int64_t>(), n * (n - 1) / 2);
  }
}

TEST_F(ControlFlow, ALoopThatNeverChangesItsConditionIsRefused) {
  const Variable holds = layers::less_than(index(0), index(1));
  layers::While loop(holds);
  EXPECT_THROW(loop.block([&] { index(3); }), Error);
}

TEST_F(ControlFlow, ABranchIsChosenByTheDataOfTheStep) {
  const Variable x = data("x", {1});
  const Variable total = layers::reduce_sum(x);
  const Variable zero = layers::fill_constant({1}, DType::kFloat64, 0);
  const auto results = layers::cond(
      layers::less_than(zero, total),
      [&] {
        return std::vector<Variable>{total * 2.0, total};
      },
      [&] {
        return std::vector<Variable>{total * -1.0, zero + 1.0};
      });
  for (const double value : {3.0, -4.0, 2.0}) {
    const Tensor fed = Tensor::from(std::vector<double>{value}, {1, 1});
    const auto got = executor_.run(main_, {{"x", fed}}, {results[0], results[1]});
    EXPECT_EQ(got[0].item<double>(), value > 0 ? 2 * value : -value);
    EXPECT_EQ(got[1].item<double>(), value > 0 ? value : 1);
  }
}

TEST_F(ControlFlow, GradientsGoThroughTheBranchThatRan) {
  const Variable x = data("x", {3});
  const Variable h = layers::fc(x, 4, {.act = "tanh"});
  const Variable zero = layers::fill_constant({1}, DType::kFloat64, 0);
  const Variable picked = layers::cond(
      layers::less_than(layers::reduce_sum(x), zero),
      [&] { return std::vector<Variable>{layers::fc(h, 4, {.param_attr = {.name = "w"}})}; },
      [&] { return std::vector<Variable>{layers::square(h)}; })[0];
  const Variable loss = loss_of(picked + h);
  const Tensor positive = random_tensor({2, 3}, 21, 0.1, 1);
  expect_gradients(loss, {{"x", positive}});
  for (int64_t i = 0; i < positive.numel(); ++i) {
    const_cast<Tensor&>(positive).data<double>()[i] *= -1;
  }
  run_loss(loss, {{"x", positive}});
  const Tensor& other = executor_.scope().tensor("w@GRAD");
  EXPECT_GT(std::abs(other.data<double>()[0]), 0);
}

TEST_F(ControlFlow, GradientsGoBackThroughStatesThatALoopRewrites) {
  const Variable x = data("x", {3});
  const auto results = layers::while_loop(
      [](const std::vector<Variable>& state) { return layers::less_than(state[0], index(3)); },
      [&](const std::vector<Variable>& state) {
        const Variable next = layers::tanh(layers::elementwise_add(
            layers::fc(state[1], 3, {.param_attr = {.name = "w"}, .bias_attr = {.name = "b"}}),
            state[1]));
        return std::vector<Variable>{state[0] + index(1), next};
      },
      {index(0), layers::fc(x, 3)});
  expect_gradients(loss_of(results[1]), {{"x", random_tensor({2, 3}, 22)}});
}

TEST_F(ControlFlow, GradientsGoThroughArraysThatALoopReadsAndWrites) {
  const Variable x = data("x", {3});
  const Variable i = index(0);
  const Variable limit = index(4);
  const Variable states = layers::array_write(layers::fc(x, 3, {.act = "tanh"}), i);
  const Variable holds = layers::less_than(i, limit);
  layers::While loop(holds);
  loop.block([&] {
    const Variable before = layers::array_read(states, i);
    layers::increment(i);
    const Variable after = layers::fc(before, 3, {.param_attr = {.name = "w"}, .act = "tanh"});
    layers::array_write(after, i, states);
    layers::assign(layers::less_than(i, limit), holds);
  });
  const Variable all = layers::tensor_array_to_tensor(states, 0).out;
  EXPECT_EQ(executor_.run(startup_).size(), 0U);
  const Feed feed = {{"x", random_tensor({2, 3}, 23)}};
  EXPECT_EQ(executor_.run(main_, feed, {all})[0].shape(), Shape({10, 3}));
  expect_gradients(loss_of(all), feed);
}

TEST_F(ControlFlow, WhatALoopReplacesInAnArrayGetsNoGradientOfWhatCameAfter) {
  const Variable x = data("x", {3});
  const Variable i = index(0);
  const Variable limit = index(2);
  const auto layer = [](const Variable& input, const char* name) {
    return layers::fc(input, 3, {.param_attr = {.name = name}, .act = "tanh"});
  };
  const Variable states = layers::array_write(layer(x, "first"), i);
  layers::array_write(layer(x, "replaced"), index(1), states);
  const Variable holds = layers::less_than(i, limit);
  layers::While loop(holds);
  loop.block([&] {
    const Variable before = layers::array_read(states, i);
    layers::increment(i);
    layers::array_write(layer(before, "w"), i, states);
    layers::assign(layers::less_than(i, limit), holds);
  });
  layers::array_write(layer(layers::array_read(states, index(2)), "last"), index(0), states);
  executor_.run(startup_);
  expect_gradients(loss_of(layers::tensor_array_to_tensor(states, 0).out),
                   {{"x", random_tensor({2, 3}, 25)}});
}

TEST_F(ControlFlow, AStaticNetGathersItsStepsAndPassesGradientsBack) {
  const Variable x = data("x", {4, -1, 3});
  layers::StaticRNN rnn;
  rnn.step([&] {
    const Variable word = rnn.step_input(x);
    const Variable before = rnn.memory({.shape = {-1, 5}, .batch_ref = word});
    const Variable hidden = layers::fc({word, before}, 5, {.act = "tanh"});
    rnn.update_memory(before, hidden);
    rnn.step_output(hidden);
  });
  const Variable out = rnn()[0];
  const Feed feed = {{"x", random_tensor({4, 2, 3}, 24)}};
  executor_.run(startup_);
  EXPECT_EQ(executor_.run(main_, feed, {out})[0].shape(), Shape({4, 2, 5}));
  expect_gradients(loss_of(out), feed);
}

}  // namespace
}  // namespace fleet::fluid
