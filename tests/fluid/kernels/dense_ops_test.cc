// Values of dense ops that the harness cannot judge: whole numbers, shapes that values decide,
// counts that go on from batch to batch, and mistakes that only values show.
#include <cmath>
#include <limits>

#include "fluid/backward/backward.h"
#include "fluid/executor/executor.h"
#include "fluid/ops/append.h"
#include "fluid/ops/paddle_form.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

class DenseOps : public NetFixture {
 protected:
  template <class T>
  Variable feed(const std::string& name, const std::vector<T>& values, const Shape& shape) {
    feed_.emplace_back(name, Tensor::from(values, shape));
    return layers::data(name, shape, dtype_of<T>(), {.append_batch_size = false});
  }
  Tensor run(const Variable& variable) { return executor_.run(main_, feed_, {variable})[0]; }
  template <class T>
  std::vector<T> values(const Variable& variable) {
    const Tensor tensor = run(variable);
    const auto span = tensor.values<T>();
    return {span.begin(), span.end()};
  }
  template <class T>
  std::vector<T> gradient(const Variable& loss, const Variable& of) {
    append_backward(loss);
    const Tensor tensor = executor_.run(main_, feed_, {of.name() + "@GRAD"})[0];
    const auto span = tensor.values<T>();
    return {span.begin(), span.end()};
  }

  Feed feed_;
  Executor executor_;
};

TEST_F(DenseOps, WholeQuotientsAreRoundedDownAndRestsHaveTheDivisorsSign) {
  const Variable x = feed<int64_t>("x", {7, -7, 7, -7, 6, -6}, {6});
  const Variable y = feed<int64_t>("y", {2, 2, -2, -2, 3, -3}, {6});
  EXPECT_THAT(values<int64_t>(layers::elementwise_floordiv(x, y)), ElementsAre(3, -4, -4, 3, 2, 2));
  EXPECT_THAT(values<int64_t>(layers::elementwise_mod(x, y)), ElementsAre(1, 1, -1, -1, 0, 0));
  EXPECT_THAT(values<int64_t>(layers::elementwise_div(x, y)), ElementsAre(3, -3, -3, 3, 2, 2));
}

TEST_F(DenseOps, WholeQuotientsAreCutInPaddlesForm) {
  const Variable x = feed<int64_t>("x", {7, -7, 7, -7, 6, -6}, {6});
  const Variable y = feed<int64_t>("y", {2, 2, -2, -2, 3, -3}, {6});
  const Variable quotient = layers::elementwise_floordiv(x, y);
  const Variable rest = layers::elementwise_mod(x, y);
  take_paddle_forms(main_);
  EXPECT_THAT(values<int64_t>(quotient), ElementsAre(3, -3, -3, 3, 2, 2));
  EXPECT_THAT(values<int64_t>(rest), ElementsAre(1, -1, 1, -1, 0, 0));
}

TEST_F(DenseOps, HalvesAreRoundedAwayFromZero) {
  const Variable x = feed<float>("x", {0.5F, 1.5F, 2.5F, -0.5F, -2.5F}, {5});
  EXPECT_THAT(values<float>(layers::round(x)), ElementsAre(1, 2, 3, -1, -3));
}

TEST_F(DenseOps, PadsOfAnyWidthPassBackTheirInside) {
  const Variable x = feed<float>("x", std::vector<float>(15, 1.0F), {3, 5});
  x.set_stop_gradient(false);
  std::vector<float> weights(6 * 9);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  const Variable w = feed<float>("w", weights, {6, 9});
  const Variable out = layers::pad(x, {1, 2, 3, 1});
  std::vector<float> inside;
  for (size_t row = 1; row < 4; ++row) {
    for (size_t column = 3; column < 8; ++column) inside.push_back(weights[row * 9 + column]);
  }
  EXPECT_THAT(gradient<float>(layers::reduce_sum(out * w), x), ElementsAreArray(inside));
}

TEST_F(DenseOps, SumsOfEverythingPassTheirGradientToEveryElement) {
  const Variable x = feed<float>("x", {1, 2, 3, 4, 5, 6}, {2, 3});
  x.set_stop_gradient(false);
  const Variable sum = layers::reduce_sum(x, {.keep_dim = true});
  EXPECT_THAT(gradient<float>(layers::reduce_sum(sum * 3.0), x), ElementsAre(3, 3, 3, 3, 3, 3));
}

// (x + 2) between 0 and 5, times x / 4.
TEST_F(DenseOps, HardSwishRisesByThresholdOverScale) {
  const Variable x = feed<float>("x", {-4, 1, 7}, {3});
  x.set_stop_gradient(false);
  const Variable out = layers::hard_swish(x, {.threshold = 5, .scale = 4, .offset = 2});
  EXPECT_THAT(gradient<float>(layers::reduce_sum(out), x), ElementsAre(0, 1, 1.25));
}

TEST_F(DenseOps, HardSwishRisesByOneInPaddlesForm) {
  const Variable x = feed<float>("x", {-4, 1, 7}, {3});
  x.set_stop_gradient(false);
  const Variable out = layers::hard_swish(x, {.threshold = 5, .scale = 4, .offset = 2});
  take_paddle_forms(main_);
  EXPECT_THAT(gradient<float>(layers::reduce_sum(out), x), ElementsAre(0, 1, 1));
}

TEST_F(DenseOps, TanhIsOneFarFromZero) {
  const Variable x = feed<float>("x", {-300, -20, -9.5, 9.5, 20, 300}, {6});
  EXPECT_THAT(values<float>(layers::tanh(x)), ElementsAre(-1, -1, -1, 1, 1, 1));
}

TEST_F(DenseOps, SoftReluHasNoGradientBeyondItsThreshold) {
  const Variable x = feed<float>("x", {-3, 0, 1.9, 3}, {4});
  x.set_stop_gradient(false);
  const auto got = gradient<float>(layers::reduce_sum(layers::soft_relu(x, 2.0)), x);
  EXPECT_EQ(got[0], 0);
  EXPECT_NEAR(got[1], 0.5, 1e-6);
  EXPECT_NEAR(got[2], 1 / (1 + std::exp(-1.9)), 1e-6);
  EXPECT_EQ(got[3], 0);
}

TEST_F(DenseOps, RowsThatAreScatteredOverHaveNoGradient) {
  const Variable x = feed<float>("x", {1, 2, 3}, {3, 1});
  const Variable updates = feed<float>("u", {4, 5}, {2, 1});
  x.set_stop_gradient(false);
  const Variable ids = feed<int64_t>("ids", {2, 0}, {2});
  const Variable out = layers::scatter(x, ids, updates);
  EXPECT_THAT(gradient<float>(layers::reduce_sum(out), x), ElementsAre(0, 1, 0));
}

// tanh is 1 there but for a rounding, which x^3 in its derivative would enlarge.
TEST_F(DenseOps, GeluIsALineFarFromZero) {
  const std::vector<float> far = {-300, -90.5, -40, -12, -9, 9, 12, 40, 90.5, 300};
  for (const bool approximate : {false, true}) {
    const std::string name = approximate ? "approximate" : "exact";
    const Variable x = feed<float>(name, far, {10});
    x.set_stop_gradient(false);
    const auto got = gradient<float>(layers::reduce_sum(layers::gelu(x, approximate)), x);
    for (size_t i = 0; i < far.size(); ++i) EXPECT_NEAR(got[i], far[i] > 0 ? 1 : 0, 1e-6) << far[i];
  }
}

TEST_F(DenseOps, SigmoidLossIgnoresLabelsByTheirWholePart) {
  const Variable x = feed<float>("x", {1, 1, 1, 1}, {4, 1});
  const Variable label = feed<float>("label", {0, 0.75, 1, 2.5}, {4, 1});
  const Variable cost =
      layers::sigmoid_cross_entropy_with_logits(x, label, {.ignore_index = 0, .normalize = true});
  const auto costs = values<float>(cost);
  EXPECT_EQ(costs[0], 0);
  EXPECT_EQ(costs[1], 0);
  EXPECT_NEAR(costs[2], (std::log1p(std::exp(1.0)) - 1) / 2, 1e-6);
}

TEST_F(DenseOps, SplitsAlongANegativeAxis) {
  const Variable x = feed<float>("x", {1, 2, 3, 4, 5, 6}, {2, 3});
  VarDesc first;
  first.name = "first";
  block().add_var(first);
  first.name = "rest";
  block().add_var(first);
  append_op(block(), {.type = "split",
                      .inputs = {{"X", {x.name()}}},
                      .outputs = {{"Out", {"first", "rest"}}},
                      .attrs = {{"sections", std::vector<int64_t>{1, 2}}, {"axis", int64_t{-1}}}});
  EXPECT_THAT(values<float>(Variable(block(), block().var("first"))), ElementsAre(1, 4));
  EXPECT_THAT(values<float>(Variable(block(), block().var("rest"))), ElementsAre(2, 3, 5, 6));
}

TEST_F(DenseOps, OneSequenceConcatenatedIsItself) {
  Tensor rows = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  rows.set_lod({{0, 1, 2}});
  feed_.emplace_back("x", rows);
  const Variable x = layers::data("x", {2}, DType::kFloat32, {.lod_level = 1});
  const Tensor out = run(layers::sequence_concat({x}));
  EXPECT_EQ(out.lod(), rows.lod());
  const auto values = out.values<float>();
  EXPECT_THAT(std::vector<float>(values.begin(), values.end()), ElementsAre(1, 2, 3, 4));
}

// Rows that are ignored cost nothing and have no gradient.
TEST_F(DenseOps, CrossEntropyPassesNothingBackToRowsThatAreIgnored) {
  const Variable p = feed<float>("p", {0.25F, 0.75F, 0.5F, 0.5F, 0.8F, 0.2F}, {3, 2});
  p.set_stop_gradient(false);
  const Variable label = feed<int64_t>("label", {1, 7, 0}, {3, 1});
  const Variable cost = layers::cross_entropy(p, label, {.ignore_index = 7});
  const std::vector<float> costs = values<float>(cost);
  EXPECT_FLOAT_EQ(costs[0], -std::log(0.75F));
  EXPECT_EQ(costs[1], 0.0F);
  EXPECT_FLOAT_EQ(costs[2], -std::log(0.8F));
  const std::vector<float> expected = {0, -1 / 0.75F, 0, 0, -1 / 0.8F, 0};
  const auto got = gradient<float>(layers::reduce_sum(cost), p);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(got[i], expected[i]) << i;
}

// Softmax of (0, log 3) is (1/4, 3/4), of (log 4, 0) (4/5, 1/5).
TEST_F(DenseOps, SoftmaxWithCrossEntropyPassesNothingBackToRowsThatAreIgnored) {
  const Variable logits =
      feed<float>("logits", {0, std::log(3.0F), 2, 1, std::log(4.0F), 0}, {3, 2});
  logits.set_stop_gradient(false);
  const Variable label = feed<int64_t>("label", {1, 0, 1}, {3, 1});
  const Variable weight = feed<float>("weight", {2, 3, 5}, {3, 1});
  const Variable cost =
      layers::softmax_with_cross_entropy(logits, label, {.ignore_index = 0}) * weight;
  const std::vector<float> costs = values<float>(cost);
  EXPECT_FLOAT_EQ(costs[0], 2 * std::log(4.0F / 3));
  EXPECT_EQ(costs[1], 0.0F);
  EXPECT_FLOAT_EQ(costs[2], 5 * std::log(5.0F));
  const std::vector<float> expected = {0.5F, -0.5F, 0, 0, 4, -4};
  const auto got = gradient<float>(layers::reduce_sum(cost), logits);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(got[i], expected[i]) << i;
}

TEST_F(DenseOps, EluHasTheGradientOneWhereItsExponentialOverflows) {
  const Variable x = feed<float>("x", {100.0F, 1e30F, 2.0F, -1.0F, -1e30F}, {5});
  x.set_stop_gradient(false);
  const Variable out = layers::elu(x, 0.5);
  const auto got = gradient<float>(layers::reduce_sum(out), x);
  const std::vector<float> expected = {1, 1, 1, 0.5F * std::exp(-1.0F), 0};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(got[i], expected[i]) << i;
}

// 5 rows into 3 windows: 0 to 1, 1 to 3, 3 to 4; 5 columns into 2: 0 to 2, 2 to 4.
TEST_F(DenseOps, AdaptiveMaximaAreThoseOfWindowsThatDivideTheImage) {
  const Variable x = feed<float>("x", {9,  0, 0, 0, 1,   //
                                       0,  2, 0, 0, 0,   //
                                       0,  0, 3, 0, 0,   //
                                       0,  4, 0, 5, 0,   //
                                       -1, 0, 0, 0, 8},  //
                                 {1, 1, 5, 5});
  const Variable out = layers::adaptive_pool2d(x, {3, 2});
  const Tensor maxima = run(out);
  EXPECT_EQ(maxima.shape(), Shape({1, 1, 3, 2}));
  EXPECT_THAT(maxima.values<float>(), ElementsAre(9, 1, 4, 5, 4, 8));
  const auto pooled = layers::adaptive_pool2d(x, {3, 2}, layers::RequireIndex());
  EXPECT_THAT(run(pooled.out).values<float>(), ElementsAre(9, 1, 4, 5, 4, 8));
  EXPECT_THAT(run(pooled.mask).values<int32_t>(), ElementsAre(0, 4, 16, 18, 16, 24));
}

TEST_F(DenseOps, HasInfAndHasNanAnswer) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Variable x = feed<float>("x", {1, 2}, {2});
  const Variable y = feed<float>("y", {1, kInf}, {2});
  const Variable z = feed<float>("z", {kNan, 2}, {2});
  EXPECT_THAT(run(layers::has_inf(x)).values<bool>(), ElementsAre(false));
  EXPECT_THAT(run(layers::has_inf(y)).values<bool>(), ElementsAre(true));
  EXPECT_THAT(run(layers::has_inf(z)).values<bool>(), ElementsAre(false));
  EXPECT_THAT(run(layers::has_nan(y)).values<bool>(), ElementsAre(false));
  EXPECT_THAT(run(layers::has_nan(z)).values<bool>(), ElementsAre(true));
  EXPECT_THAT(run(layers::isfinite(x)).values<bool>(), ElementsAre(true));
  EXPECT_THAT(run(layers::isfinite(z)).values<bool>(), ElementsAre(false));
}

// log(1 + e^z) along each path, less z where the bit is set; nothing behind the end of a path.
TEST_F(DenseOps, HierarchicalSigmoidCostsTheSumAlongEachPath) {
  const Variable x = feed<float>("x", {1, 2, -1, 0.5}, {2, 2});
  const Variable label = feed<int64_t>("label", {0, 1}, {2, 1});
  const Variable table = feed<int64_t>("table", {0, 2, 1, 1, -1, -1}, {2, 3});
  const Variable code = feed<int64_t>("code", {1, 0, 1, 0, -1, -1}, {2, 3});
  const auto given = [](const std::string& name, const std::vector<float>& values, Shape shape) {
    return ParamAttr{.name = name, .initializer = initializer::Assign{Tensor::from(values, shape)}};
  };
  const Variable cost =
      layers::hsigmoid(x, label, 3,
                       {.param_attr = given("w", {0.5, -1, 0.25, 1, 2, -0.5}, {3, 2}),
                        .bias_attr = given("b", {0.125, 0.25, 0.375}, {3, 1}),
                        .path_table = table,
                        .path_code = code,
                        .is_custom = true});
  executor_.run(startup_);
  const auto softplus = [](double z) { return std::log(1 + std::exp(z)); };
  const double first = 0.5 * 1 - 1 * 2 + 0.125;
  const double second = 2 * 1 - 0.5 * 2 + 0.375;
  const double third = 0.25 * 1 + 1 * 2 + 0.25;
  const double other = 0.25 * -1 + 1 * 0.5 + 0.25;
  const auto costs = values<float>(cost);
  ASSERT_EQ(costs.size(), 2U);
  EXPECT_NEAR(costs[0], softplus(first) - first + softplus(second) + softplus(third) - third, 1e-6);
  EXPECT_NEAR(costs[1], softplus(other), 1e-6);
}

TEST_F(DenseOps, TheSmallestWholeNumberOverMinusOneStays) {
  const auto smallest = std::numeric_limits<int64_t>::min();
  const Variable x = feed<int64_t>("x", {smallest, 5}, {2});
  const Variable y = feed<int64_t>("y", {-1, -1}, {2});
  EXPECT_THAT(values<int64_t>(layers::elementwise_div(x, y)), ElementsAre(smallest, -5));
  EXPECT_THAT(values<int64_t>(layers::elementwise_mod(x, y)), ElementsAre(0, 0));
}

TEST_F(DenseOps, AWholeNumberOverZeroIsAnError) {
  const Variable x = feed<int64_t>("x", {1}, {1});
  const Variable y = feed<int64_t>("y", {0}, {1});
  const Variable z = layers::elementwise_div(x, y);
  expect_error([&] { run(z); }, ErrorCode::kNumerics, {"divided by 0", "Y"});
}

TEST_F(DenseOps, WhereGivesThePositionsOfWhatIsTrue) {
  const Variable x = feed<float>("x", {0, 2, 3, 0, 0, 6}, {2, 3});
  const Variable zero = layers::fill_constant({1}, DType::kFloat32, 0.0);
  const Tensor found = run(layers::where(x > zero));
  EXPECT_EQ(found.shape(), (Shape{3, 2}));
  EXPECT_THAT(found.values<int64_t>(), ElementsAre(0, 1, 0, 2, 1, 2));
}

TEST_F(DenseOps, NumbersOfTensorsAreAttributesThatChange) {
  std::vector<float> ramp(24);
  for (size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i);
  const Variable x = feed<float>("x", ramp, {4, 6});
  const Variable numbers = layers::data("n", {2}, DType::kInt32, {.append_batch_size = false});
  const auto by_tensor = [&](const char* type, const char* slot) {
    VarDesc desc;
    desc.name = type;
    const Variable out(block(), block().add_var(desc));
    append_op(block(), {.type = type,
                        .inputs = {{"X", {x.name()}}, {slot, {numbers.name()}}},
                        .outputs = {{"Out", {out.name()}}},
                        .attrs = {}});
    return out;
  };
  const Variable expanded = by_tensor("expand", "ExpandTimes");
  for (const std::vector<int>& times : {std::vector<int>{3, 2}, {1, 4}, {3, 2}}) {
    const Variable known = layers::expand(x, times);
    feed_.resize(1);
    feed_.emplace_back("n", Tensor::from(std::vector<int32_t>{times[0], times[1]}, {2}));
    EXPECT_EQ(run(expanded).shape(), (Shape{4 * times[0], 6 * times[1]}));
    EXPECT_EQ(values<float>(expanded), values<float>(known));
  }
  feed_.back().second = Tensor::from(std::vector<int32_t>{0, 1}, {2});
  expect_error([&] { run(expanded); }, ErrorCode::kShapeMismatch, {"expand", "expand_times >= 1"});
}

TEST_F(DenseOps, ARangeEndsBeforeItsEnd) {
  EXPECT_THAT(values<int64_t>(layers::range(1, 8, 3, DType::kInt64)), ElementsAre(1, 4, 7));
  EXPECT_THAT(values<float>(layers::range(1, -1, -0.5, DType::kFloat32)),
              ElementsAre(1.0f, 0.5f, 0.0f, -0.5f));
  EXPECT_THAT(values<int64_t>(layers::range(3, 3, 1, DType::kInt64)), ElementsAre());
}

TEST_F(DenseOps, ARangeWithoutAStepIsAnError) {
  const Variable range = layers::range(1, 2, 0, DType::kInt64);
  expect_error([&] { run(range); }, ErrorCode::kInvalidArgument, {"op range", "Step"});
}

TEST_F(DenseOps, AConstantTakesTheBatchOfItsInput) {
  const Variable x = feed<float>("x", {1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor filled = run(
      layers::fill_constant_batch_size_like(x, {-1, 4}, DType::kInt64, 7, {.output_dim_idx = 0}));
  EXPECT_EQ(filled.shape(), (Shape{3, 4}));
  EXPECT_EQ(filled.values<int64_t>()[11], 7);
}

TEST_F(DenseOps, AConstantTakesItsShapeAndValueFromTensors) {
  const Variable rows = feed<int32_t>("rows", {2}, {1});
  const Variable columns = feed<int32_t>("columns", {3}, {1});
  const Variable value = feed<float>("value", {2.5f}, {1});
  VarDesc desc;
  desc.name = "out";
  block().add_var(desc);
  append_op(block(), {.type = "fill_constant",
                      .inputs = {{"ShapeTensorList", {rows.name(), columns.name()}},
                                 {"ValueTensor", {value.name()}}},
                      .outputs = {{"Out", {"out"}}},
                      .attrs = {}});
  const Tensor out = executor_.run(main_, feed_, {"out"})[0];
  EXPECT_EQ(out.shape(), (Shape{2, 3}));
  EXPECT_THAT(out.values<float>(), testing::Each(2.5f));
}

TEST_F(DenseOps, GatherGivesARowTheSumOfItsGradients) {
  const Variable x = layers::create_parameter({3, 1}, DType::kFloat32, {.name = "x"});
  executor_.scope().var("x") = Tensor::from<float>({1, 2, 3}, {3, 1});
  const Variable index = feed<int64_t>("index", {1, 1, 0}, {3});
  const Variable weights = feed<float>("weights", {1, 10, 100}, {3, 1});
  const Variable loss = layers::reduce_sum(layers::gather(x, index) * weights);
  EXPECT_THAT(gradient<float>(loss, x), ElementsAre(100, 11, 0));
}

TEST_F(DenseOps, GatherCanGiveTheLastGradientOnly) {
  const Variable x = layers::create_parameter({3, 1}, DType::kFloat32, {.name = "x"});
  executor_.scope().var("x") = Tensor::from<float>({1, 2, 3}, {3, 1});
  const Variable index = feed<int64_t>("index", {1, 1, 0}, {3});
  const Variable weights = feed<float>("weights", {1, 10, 100}, {3, 1});
  const Variable loss = layers::reduce_sum(layers::gather(x, index, true) * weights);
  EXPECT_THAT(gradient<float>(loss, x), ElementsAre(100, 10, 0));
}

TEST_F(DenseOps, ScatterReplacesOrAdds) {
  const Variable x = feed<float>("x", {1, 2, 3}, {3, 1});
  const Variable ids = feed<int64_t>("ids", {2, 0, 2}, {3});
  const Variable updates = feed<float>("updates", {10, 20, 30}, {3, 1});
  EXPECT_THAT(values<float>(layers::scatter(x, ids, updates)), ElementsAre(20, 2, 30));
  EXPECT_THAT(values<float>(layers::scatter(x, ids, updates, false)), ElementsAre(20, 2, 40));
}

TEST_F(DenseOps, OfUpdatesToOneRowOnlyTheLastHasAGradient) {
  const Variable x = feed<float>("x", {1, 2, 3}, {3, 1});
  const Variable ids = feed<int64_t>("ids", {2, 0, 2}, {3});
  const Variable updates = layers::create_parameter({3, 1}, DType::kFloat32, {.name = "updates"});
  executor_.scope().var("updates") = Tensor::from<float>({10, 20, 30}, {3, 1});
  const Variable loss = layers::reduce_sum(layers::scatter(x, ids, updates));
  EXPECT_THAT(gradient<float>(loss, updates), ElementsAre(0, 1, 1));
}

TEST_F(DenseOps, AProductWithZerosHasAGradient) {
  const Variable x = layers::create_parameter({3, 3}, DType::kFloat32, {.name = "x"});
  executor_.scope().var("x") = Tensor::from<float>({2, 3, 4, 0, 3, 4, 0, 0, 4}, {3, 3});
  const Variable loss = layers::reduce_sum(layers::reduce_prod(x, {.dim = {1}}));
  EXPECT_THAT(gradient<float>(loss, x), ElementsAre(12, 8, 6, 12, 0, 0, 0, 0, 0));
}

TEST_F(DenseOps, ReductionsKeepWhatIsNotANumber) {
  const float nan = std::nanf("");
  const Variable x = feed<float>("x", {1, nan, 3, 4, 5, 6}, {2, 3});
  for (const Variable& y :
       {layers::reduce_max(x, {.dim = {1}}), layers::reduce_min(x, {.dim = {1}}),
        layers::reduce_sum(x, {.dim = {1}})}) {
    EXPECT_TRUE(std::isnan(values<float>(y)[0])) << y.name();
    EXPECT_FALSE(std::isnan(values<float>(y)[1])) << y.name();
  }
}

TEST_F(DenseOps, ReductionsTakeWholeNumbersAndCast) {
  const Variable x = feed<int64_t>("x", {1, 2, 3, 4, 5, 7}, {2, 3});
  EXPECT_THAT(values<int64_t>(layers::reduce_sum(x, {.dim = {1}})), ElementsAre(6, 16));
  EXPECT_THAT(values<int64_t>(layers::reduce_prod(x, {.dim = {0}})), ElementsAre(4, 10, 21));
  VarDesc desc;
  desc.name = "mean";
  block().add_var(desc);
  append_op(block(),
            {.type = "reduce_mean",
             .inputs = {{"X", {"x"}}},
             .outputs = {{"Out", {"mean"}}},
             .attrs = {{"dim", std::vector<int64_t>{1}}, {"out_dtype", std::string("float32")}}});
  const Tensor mean = executor_.run(main_, feed_, {"mean"})[0];
  EXPECT_FLOAT_EQ(mean.values<float>()[1], 16.0f / 3);
}

TEST_F(DenseOps, AnIndexOutsideIsAnErrorThatNamesIt) {
  const Variable x = feed<float>("x", {1, 2, 3}, {3, 1});
  const Variable index = feed<int64_t>("index", {3}, {1});
  const Variable gathered = layers::gather(x, index);
  expect_error([&] { run(gathered); }, ErrorCode::kFeed, {"gather", "0 to 2", "3"});
}

TEST_F(DenseOps, AClassOutsideIsAnErrorUnlessItIsAllowed) {
  const Variable x = feed<int64_t>("x", {1, 4}, {2, 1});
  EXPECT_THAT(values<float>(layers::one_hot(x, 4, true)), ElementsAre(0, 1, 0, 0, 0, 0, 0, 0));
  const Variable strict = layers::one_hot(x, 4);
  expect_error([&] { run(strict); }, ErrorCode::kFeed, {"one_hot", "0 to 3", "4"});
}

TEST_F(DenseOps, EqualElementsAreSortedInTheirOrder) {
  const Variable x = feed<float>("x", {2, 1, 2, 1}, {1, 4});
  EXPECT_THAT(values<int64_t>(layers::argsort(x).indices), ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(values<int64_t>(layers::argsort(x, -1, true).indices), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(values<int64_t>(layers::argmax(x, 1)), ElementsAre(0));
  EXPECT_THAT(values<int64_t>(layers::argmin(x, 1)), ElementsAre(1));
}

TEST_F(DenseOps, CosineOfOneRowAgainstMany) {
  const Variable x = feed<float>("x", {3, 4, 0, 2}, {2, 2});
  const Variable y = feed<float>("y", {0, 1}, {1, 2});
  const auto cosines = values<float>(layers::cos_sim(x, y));
  EXPECT_FLOAT_EQ(cosines[0], 0.8f);
  EXPECT_FLOAT_EQ(cosines[1], 1.0f);
}

TEST_F(DenseOps, OneRowHasANormWithoutRowsToCompare) {
  const Variable x = feed<float>("x", {}, {0, 2});
  const Variable y = feed<float>("y", {3, 4}, {1, 2});
  EXPECT_EQ(run(layers::cos_sim(x, y)).shape(), (Shape{0, 1}));
  const std::string norm = op_of("cos_sim").output("YNorm").front();
  EXPECT_EQ(executor_.run(main_, feed_, {norm})[0].item<float>(), 5.0F);
}

class SortGradients : public DenseOps {
 protected:
  void SetUp() override {
    feed<float>("x", std::vector<float>(6), {2, 3});
    feed<float>("grad", {1, 2, 3, 4, 5, 6}, {2, 3});
    feed<int64_t>("indices", std::vector<int64_t>(6), {2, 3});
    VarDesc desc;
    desc.name = "x_grad";
    block().add_var(desc);
    append_op(block(), {.type = "argsort_grad",
                        .inputs = {{"X", {"x"}}, {"Indices", {"indices"}}, {"Out@GRAD", {"grad"}}},
                        .outputs = {{"X@GRAD", {"x_grad"}}},
                        .attrs = {{"axis", int64_t{1}}}});
  }
  // X@GRAD of two lines of three elements.
  std::vector<float> gradient_of(const std::vector<int64_t>& indices) {
    feed_.back().second = Tensor::from(indices, {2, 3});
    return values<float>(Variable(block(), block().var("x_grad")));
  }
};

TEST_F(SortGradients, AreZeroWhereNoIndexLeads) {
  EXPECT_THAT(gradient_of({2, 0, 1, 1, 2, 0}), ElementsAre(2, 3, 1, 6, 4, 5));
  EXPECT_THAT(gradient_of({2, 2, 2, 1, 1, 0}), ElementsAre(0, 0, 3, 6, 5, 0));
}

TEST_F(SortGradients, RefuseAnIndexOutsideOfItsLine) {
  expect_error(
      [&] {
        gradient_of({2, 0, 3, 0, 1, 2});
      },
      ErrorCode::kFeed, {"argsort_grad", "'Indices'", "0 to 2", "got: 3"});
}

TEST_F(SortGradients, RefuseAnIndexBelowZero) {
  expect_error(
      [&] {
        gradient_of({2, 0, 1, -1, 1, 2});
      },
      ErrorCode::kFeed, {"argsort_grad", "'Indices'", "0 to 2", "got: -1"});
}

class Metrics : public DenseOps {
 protected:
  void SetUp() override {
    predict_ = layers::data("predict", {2});
    label_ = layers::data("label", {1}, DType::kInt64);
  }
  Feed batch(const std::vector<float>& positive, const std::vector<int64_t>& labels) {
    std::vector<float> both;
    for (const float p : positive) both.insert(both.end(), {1 - p, p});
    const auto rows = static_cast<int64_t>(labels.size());
    return {{"predict", Tensor::from(both, {rows, 2})}, {"label", Tensor::from(labels, {rows, 1})}};
  }

  Variable predict_;
  Variable label_;
};

// The share of (positive, negative) pairs in the right order, ties counting half.
TEST_F(Metrics, AucIsTheShareOfPairsInTheRightOrder) {
  const auto auc = layers::auc(predict_, label_, {.num_thresholds = 99, .slide_steps = 2});
  executor_.run(startup_);
  const auto run_batch = [&](const Feed& feed) {
    const auto results = executor_.run(main_, feed, {auc.auc, auc.batch_auc});
    return std::pair(results[0].item<double>(), results[1].item<double>());
  };
  const Feed right = batch({0.9f, 0.2f}, {1, 0});
  const Feed wrong = batch({0.3f, 0.8f}, {1, 0});
  EXPECT_EQ(run_batch(right), std::pair(1.0, 1.0));
  // Pairs of positives 0.9, 0.3 and negatives 0.2, 0.8: three of four are in order.
  EXPECT_EQ(run_batch(wrong), std::pair(0.75, 0.75));
  // The window has forgotten the first batch.
  EXPECT_EQ(run_batch(wrong).second, 0.0);
}

TEST_F(Metrics, AucWithoutAWindowIsThatOfAllBatches) {
  const auto auc = layers::auc(predict_, label_, {.num_thresholds = 99, .slide_steps = 0});
  executor_.run(startup_);
  for (const auto& [predictions, expected] :
       {std::pair(std::vector<float>{0.9f, 0.2f}, 1.0), std::pair(std::vector{0.3f, 0.8f}, 0.75)}) {
    const auto results = executor_.run(main_, batch(predictions, {1, 0}), {auc.auc, auc.batch_auc});
    EXPECT_EQ(results[0].item<double>(), expected);
    EXPECT_EQ(results[1].item<double>(), expected);
  }
}

// Precision and recall from the highest prediction on: (1, 1/2), (1/2, 1/2), (2/3, 1).
TEST_F(Metrics, AucOfPrecisionOverRecall) {
  const auto auc = layers::auc(predict_, label_, {.curve = "PR", .num_thresholds = 99});
  executor_.run(startup_);
  const Feed feed = batch({0.9f, 0.8f, 0.7f}, {1, 0, 1});
  const double area = executor_.run(main_, feed, {auc.auc})[0].item<double>();
  EXPECT_DOUBLE_EQ(area, 0.5 * 1 + 0.5 * (0.5 + 2.0 / 3) / 2);
}

TEST_F(Metrics, AucRefusesWhatIsNotAProbability) {
  const auto auc = layers::auc(predict_, label_);
  executor_.run(startup_);
  expect_error([&] { executor_.run(main_, batch({1.5f}, {1}), {auc.auc}); }, ErrorCode::kFeed,
               {"auc", "0 to 1", "1.5"});
}

TEST_F(DenseOps, PrecisionAndRecallOfClassesAndOfAll) {
  const Variable probabilities = feed<float>("p", {1, 1, 1, 1}, {4, 1});
  const Variable guesses = feed<int32_t>("guesses", {0, 0, 1, 1}, {4, 1});
  const Variable truth = feed<int32_t>("truth", {0, 1, 1, 1}, {4, 1});
  const auto result = layers::precision_recall(probabilities, guesses, truth, 2);
  const auto metrics = values<double>(result.batch_metrics);
  EXPECT_DOUBLE_EQ(metrics[0], (0.5 + 1.0) / 2);
  EXPECT_DOUBLE_EQ(metrics[1], (1.0 + 2.0 / 3) / 2);
  EXPECT_DOUBLE_EQ(metrics[3], 0.75);
  EXPECT_DOUBLE_EQ(metrics[4], 0.75);
  EXPECT_DOUBLE_EQ(metrics[5], 0.75);
  EXPECT_THAT(values<float>(result.states), ElementsAre(1, 1, 2, 0, 2, 0, 1, 1));
}

TEST_F(DenseOps, StatesOfPrecisionAndRecallGoOn) {
  feed<float>("p", {1}, {1, 1});
  feed<int32_t>("guesses", {1}, {1, 1});
  feed<int32_t>("truth", {0}, {1, 1});
  feed<float>("states", {1, 1, 2, 0, 2, 0, 1, 1}, {2, 4});
  VarDesc desc;
  for (const char* name : {"batch", "all", "after"}) {
    desc.name = name;
    block().add_var(desc);
  }
  append_op(block(), {.type = "precision_recall",
                      .inputs = {{"MaxProbs", {"p"}},
                                 {"Indices", {"guesses"}},
                                 {"Labels", {"truth"}},
                                 {"StatesInfo", {"states"}}},
                      .outputs = {{"BatchMetrics", {"batch"}},
                                  {"AccumMetrics", {"all"}},
                                  {"AccumStatesInfo", {"after"}}},
                      .attrs = {{"class_number", int64_t{2}}}});
  const auto results = executor_.run(main_, feed_, {"batch", "all", "after"});
  EXPECT_DOUBLE_EQ(results[0].values<double>()[3], 0.0);
  EXPECT_DOUBLE_EQ(results[1].values<double>()[3], 0.6);
  EXPECT_THAT(results[2].values<float>(), ElementsAre(1, 1, 2, 1, 2, 1, 1, 1));
}

}  // namespace
}  // namespace fleet::fluid
