// Weights as a length times a direction.
#include "fluid/layers/parameters/weight_norm.h"

#include <cmath>

#include "fluid/executor/executor.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

class WeightNormTest : public NetFixture {
 protected:
  // v[i][j] of [3, 2].
  static initializer::Assign values() {
    return {Tensor::from(std::vector<float>{1, -2, 2, 3, -4, 6}, {3, 2})};
  }
  Variable layer(std::optional<int> dim) {
    const Variable x = layers::data("x", {3});
    return layers::fc(
        x, 2,
        {.param_attr = WeightNormParamAttr(dim, {.name = "w", .initializer = values()}),
         .bias_attr = no_bias()});
  }
  static Feed feed() {
    return {{"x", Tensor::from(std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}, {3, 3})}};
  }
  std::vector<float> read(const std::string& name) {
    const auto values = executor_.scope().tensor(name).values<float>();
    return {values.begin(), values.end()};
  }

  Executor executor_;
};

TEST_F(WeightNormTest, BeginsWithTheWeightItself) {
  for (const std::optional<int> dim : {std::optional<int>(), std::optional(0), std::optional(-1)}) {
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable out = layer(dim);
    Executor executor;
    executor.run(startup);
    const Tensor w = executor.run(main, feed(), {out})[0];  // x is the identity
    const auto got = w.values<float>();
    const initializer::Assign first = values();
    const auto expected = first.values.values<float>();
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(got[i], expected[i], 1e-5F) << dim.value_or(9);
  }
}

TEST_F(WeightNormTest, HasTheNormsOfTheDimensionAsked) {
  layer(1);
  executor_.run(startup_);
  EXPECT_EQ(block().var("w_g").shape, (Shape{1, 2}));
  EXPECT_EQ(block().var("w_v").shape, (Shape{3, 2}));
  const auto g = read("w_g");
  EXPECT_NEAR(g[0], std::sqrt(1.0F + 4 + 16), 1e-5F);
  EXPECT_NEAR(g[1], std::sqrt(4.0F + 9 + 36), 1e-5F);
}

TEST_F(WeightNormTest, ALengthAloneScalesTheResult) {
  const Variable out = layer(1);
  executor_.run(startup_);
  executor_.scope().tensor("w_g").data<float>()[1] *= 3;
  const Tensor w = executor_.run(main_, feed(), {out})[0];
  EXPECT_NEAR(w.values<float>()[0], 1, 1e-5F);
  EXPECT_NEAR(w.values<float>()[1], -6, 1e-4F);
}

// The gradient of v is at right angles to v: a direction has no length to learn.
TEST_F(WeightNormTest, TrainsLengthAndDirectionApart) {
  const Variable loss = layers::mean(layers::square(layer(1)));
  optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  executor_.run(startup_);
  const auto before = read("w_v");
  const auto results = executor_.run(main_, feed(), {loss, "w_v@GRAD", "w_g@GRAD"});
  const auto grad = results[1].values<float>();
  for (const size_t column : {0, 1}) {
    float product = 0;
    for (size_t row = 0; row < 3; ++row)
      product += before[row * 2 + column] * grad[row * 2 + column];
    EXPECT_NEAR(product, 0, 1e-4F) << column;
  }
  EXPECT_GT(std::abs(results[2].values<float>()[0]), 0.1F);
  EXPECT_LT(executor_.run(main_, feed(), {loss})[0].item<float>(), results[0].item<float>());
}

TEST_F(WeightNormTest, RefusesADimensionThatTheWeightDoesNotHave) {
  expect_error([&] { layer(2); }, ErrorCode::kInvalidArgument, {"fc", "'w'", "[-2, 2)", "2"});
}

}  // namespace
}  // namespace fleet::fluid
