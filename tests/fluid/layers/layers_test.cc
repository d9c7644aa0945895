#include "fluid/layers/layers.h"

#include <cmath>

#include "fluid/fluid.h"
#include "fluid/layers/conv.h"
#include "fluid/ops/append.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/shape/initialize.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;

class LayersTest : public NetFixture {
 protected:
  LayersTest() : x_(layers::data("x", {4})), y_(layers::data("y", {1}, DType::kInt64)) {}

  const Operator& startup_op(size_t i) { return startup_.global_block().op(i); }

  Variable x_;
  Variable y_;
};

TEST_F(LayersTest, DataPutsTheBatchInFront) {
  EXPECT_EQ(x_.shape(), (Shape{-1, 4}));
  EXPECT_EQ(layers::data("z", {-1, 2}).shape(), (Shape{-1, 2}));
  EXPECT_EQ(layers::data("v", {3}, DType::kFloat32, {.append_batch_size = false}).shape(),
            (Shape{3}));
  EXPECT_TRUE(x_.stop_gradient());
  EXPECT_EQ(layers::data("x", {4}).name(), x_.name());
}

TEST_F(LayersTest, FcNamesItsPartsAndInitialises) {
  const Variable h = layers::fc(x_, 3, {.act = "tanh"});
  EXPECT_EQ(h.name(), "fc_0.tmp_2");
  EXPECT_EQ(h.shape(), (Shape{-1, 3}));
  EXPECT_THAT(op_types(), ElementsAre("mul", "elementwise_add", "tanh"));
  // Initialisers stand in front: the last parameter made comes first.
  EXPECT_THAT(startup_op(0).output("Out"), ElementsAre("fc_0.b_0"));
  EXPECT_THAT(startup_op(1).output("Out"), ElementsAre("fc_0.w_0"));
  const auto attrs = parse_attributes<UniformRandomAttrs>("t", startup_op(1).attrs);
  EXPECT_FLOAT_EQ(attrs.max, std::sqrt(6.0f / 7.0f));
  EXPECT_FLOAT_EQ(attrs.min, -attrs.max);
  EXPECT_NO_THROW(verify(main_));
}

TEST_F(LayersTest, FcAddsUpSeveralInputs) {
  const Variable other = layers::data("other", {2, 3});
  const Variable h = layers::fc({x_, other}, 5, {.bias_attr = no_bias(), .name = "join"});
  EXPECT_THAT(op_types(), ElementsAre("mul", "mul", "sum"));
  EXPECT_EQ(block().var("join.w_0").shape, (Shape{4, 5}));
  EXPECT_EQ(block().var("join.w_1").shape, (Shape{6, 5}));
  EXPECT_EQ(h.name(), "join.tmp_2");
}

TEST_F(LayersTest, FcFlattensFromTheDimensionAskedFor) {
  const Variable deep = layers::data("deep", {2, 3});
  EXPECT_EQ(layers::fc(deep, 5, {.num_flatten_dims = 2}).shape(), (Shape{-1, 2, 5}));
  EXPECT_EQ(layers::fc(deep, 5, {.num_flatten_dims = -1}).shape(), (Shape{-1, 2, 5}));
  EXPECT_EQ(block().var("fc_0.w_0").shape, (Shape{3, 5}));
}

TEST_F(LayersTest, ParamAttrReachesTheParameter) {
  const ParamAttr attr{.name = "w",
                       .initializer = initializer::Normal{.loc = 1.0, .scale = 2.0},
                       .learning_rate = 0.5,
                       .regularizer = regularizer::L2Decay(0.1),
                       .trainable = false};
  layers::fc(x_, 3, {.param_attr = attr});
  const VarDesc& w = block().var("w");
  EXPECT_TRUE(w.is_parameter);
  EXPECT_TRUE(w.persistable);
  EXPECT_FALSE(w.trainable);
  EXPECT_EQ(w.learning_rate, 0.5);
  EXPECT_EQ(w.regularizer->kind, "L2Decay");
  EXPECT_EQ(startup_op(1).type, "gaussian_random");
}

TEST_F(LayersTest, MsraDrawsForTheInputsOfAnElement) {
  layers::fc(x_, 3, {.param_attr = {.initializer = initializer::MSRA{}}, .bias_attr = no_bias()});
  const auto uniform = parse_attributes<UniformRandomAttrs>("t", startup_op(0).attrs);
  EXPECT_FLOAT_EQ(uniform.max, std::sqrt(6.0f / 4.0f));
  EXPECT_FLOAT_EQ(uniform.min, -uniform.max);
  // A filter of 3 x 3 over 2 channels.
  const ParamAttr normal{.initializer = initializer::MSRA{.uniform = false}};
  layers::conv2d(layers::data("image", {2, 8, 8}), 4, 3,
                 {.param_attr = normal, .bias_attr = no_bias()});
  const auto filter = parse_attributes<GaussianRandomAttrs>("t", startup_op(0).attrs);
  EXPECT_FLOAT_EQ(filter.std, std::sqrt(2.0f / 18.0f));
  EXPECT_FLOAT_EQ(filter.mean, 0.0f);
  const ParamAttr told{.initializer = initializer::MSRA{.uniform = false, .fan_in = 8.0}};
  layers::fc(x_, 3, {.param_attr = told, .bias_attr = no_bias()});
  EXPECT_FLOAT_EQ(parse_attributes<GaussianRandomAttrs>("t", startup_op(0).attrs).std, 0.5f);
}

// The middle two of four weights of a filter that doubles an image are 3/4, the outer two 1/4.
TEST_F(LayersTest, BilinearFiltersInterpolate) {
  layers::conv2d_transpose(layers::data("image", {1, 4, 4}), 2,
                           {.filter_size = 4,
                            .param_attr = {.initializer = initializer::Bilinear{}},
                            .bias_attr = no_bias()});
  const auto attrs = parse_attributes<AssignValueAttrs>("t", startup_op(0).attrs);
  const float weights[] = {0.25f, 0.75f, 0.75f, 0.25f};
  ASSERT_EQ(attrs.fp32_values.size(), 2U * 16U);
  for (size_t i = 0; i < attrs.fp32_values.size(); ++i) {
    EXPECT_FLOAT_EQ(attrs.fp32_values[i], weights[i / 4 % 4] * weights[i % 4]) << i;
  }
}

// What release 1.8.5 computes.
TEST_F(LayersTest, BilinearFiltersInPaddlesForm) {
  layers::conv2d_transpose(
      layers::data("image", {1, 4, 4}), 1,
      {.filter_size = 4,
       .param_attr = {.initializer = initializer::Bilinear{.paddle_form = true}},
       .bias_attr = no_bias()});
  const auto attrs = parse_attributes<AssignValueAttrs>("t", startup_op(0).attrs);
  const std::vector<float> expected = {0.0625F, 0.28125F, 0.375F,  0.15625F, 0.1875F, 0.65625F,
                                       0.75F,   0.21875F, 0.1875F, 0.46875F, 0.375F,  0.09375F,
                                       0.0625F, 0.09375F, 0.0F,    -0.03125F};
  EXPECT_EQ(attrs.fp32_values, expected);
}

TEST_F(LayersTest, SharedParametersAreInitialisedOnce) {
  layers::fc(x_, 4, {.param_attr = {.name = "w"}, .bias_attr = no_bias()});
  layers::fc(x_, 4, {.param_attr = {.name = "w"}, .bias_attr = no_bias()});
  EXPECT_EQ(startup_.global_block().op_count(), 1u);
  EXPECT_EQ(block().parameters().size(), 1u);
}

TEST_F(LayersTest, OperatorsMakeScalesAndElementwiseOps) {
  const Variable a = 2.0 * x_ + 1.0;
  const Variable b = 1.0 - a / 4.0;
  const Variable c = a - b;
  EXPECT_EQ(c.name(), "tmp_4");
  EXPECT_THAT(op_types(), ElementsAre("scale", "scale", "scale", "scale", "elementwise_sub"));
  EXPECT_EQ(block().op(2).attrs.at("scale"), Attribute(0.25));
  EXPECT_EQ(block().op(3).attrs.at("scale"), Attribute(-1.0));
  EXPECT_EQ(block().op(3).attrs.at("bias"), Attribute(1.0));
}

TEST_F(LayersTest, ShapesFollowTheOps) {
  EXPECT_EQ(layers::concat({x_, x_}, 1).shape(), (Shape{-1, 8}));
  EXPECT_EQ(layers::split(x_, std::vector<int>{1, -1}, 1)[1].shape(), (Shape{-1, 3}));
  EXPECT_EQ(layers::reshape(x_, {-1, 2, 2}).shape(), (Shape{-1, 2, 2}));
  EXPECT_EQ(layers::transpose(layers::data("d", {2, 3}), {2, 0, 1}).shape(), (Shape{3, -1, 2}));
  EXPECT_EQ(layers::reduce_sum(x_, {.dim = {1}, .keep_dim = true}).shape(), (Shape{-1, 1}));
  EXPECT_EQ(layers::reduce_mean(x_).shape(), (Shape{1}));
  EXPECT_EQ(layers::topk(x_, 2).indices.dtype(), DType::kInt64);
  EXPECT_EQ(layers::cast(x_, DType::kFloat64).dtype(), DType::kFloat64);
  EXPECT_EQ(layers::accuracy(x_, y_, 2).shape(), (Shape{1}));
  EXPECT_EQ(layers::softmax_with_cross_entropy(x_, y_).shape(), (Shape{-1, 1}));
  EXPECT_NO_THROW(verify(main_));
}

TEST_F(LayersTest, SchedulesShareOneCounter) {
  layers::exponential_decay(0.1, 10, 0.5, true);
  layers::natural_exp_decay(0.1, 10, 0.5);
  int counters = 0;
  for (const std::string& type : op_types()) counters += type == "increment" ? 1 : 0;
  EXPECT_EQ(counters, 1);
  EXPECT_EQ(op_types().front(), "increment");
  for (const auto& op : block().ops()) EXPECT_EQ(op->role, OpRole::kLrSched) << op->type;
}

TEST_F(LayersTest, TheQuickStartNetCompilesAsWritten) {
  namespace short_fluid = ::fluid;
  const auto h = short_fluid::layers::fc(x_, 128, {.act = "tanh"});
  const auto p = short_fluid::layers::fc(h, 2, {.act = "softmax"});
  const auto cost = short_fluid::layers::mean(short_fluid::layers::cross_entropy(p, y_));
  short_fluid::optimizer::SGD sgd({.learning_rate = 0.01});
  EXPECT_EQ(sgd.minimize(cost).params_grads.size(), 4u);
  EXPECT_NO_THROW(verify(main_));
  EXPECT_NO_THROW(verify(startup_));
}

// Mistakes: each names the layer or op, the variable, what was expected, what came, and the fix.

TEST_F(LayersTest, RefusesLabelsOfAnotherElementType) {
  const Variable label = layers::data("label", {1});
  expect_error([&] { layers::cross_entropy(x_, label); }, ErrorCode::kDTypeMismatch,
               {"cross_entropy2", "'label'", "int64", "float32"});
}

TEST_F(LayersTest, RefusesLabelsOfAnotherShape) {
  const Variable label = layers::data("label", {2}, DType::kInt64);
  expect_error([&] { layers::cross_entropy(x_, label); }, ErrorCode::kShapeMismatch,
               {"cross_entropy2", "'label'", "[-1, 1]", "[-1, 2]"});
}

TEST_F(LayersTest, RefusesSoftLabelsOfAnotherShape) {
  const Variable label = layers::data("label", {3});
  expect_error([&] { layers::cross_entropy(x_, label, {.soft_label = true}); },
               ErrorCode::kShapeMismatch, {"cross_entropy", "'label'", "[-1, 4]", "[-1, 3]"});
}

TEST_F(LayersTest, RefusesVariablesThatDoNotBroadcast) {
  const Variable z = layers::data("z", {3});
  expect_error([&] { layers::elementwise_add(x_, z); }, ErrorCode::kShapeMismatch,
               {"elementwise_add", "'x'", "'z'", "[-1, 4]", "[-1, 3]"});
}

TEST_F(LayersTest, RefusesMixedElementTypes) {
  expect_error([&] { layers::square_error_cost(x_, y_); }, ErrorCode::kDTypeMismatch,
               {"elementwise_sub", "'y'", "float32", "int64", "cast"});
}

TEST_F(LayersTest, RefusesIntegersInFc) {
  expect_error([&] { layers::fc(y_, 3); }, ErrorCode::kInvalidArgument,
               {"layer 'fc'", "'y'", "int64", "cast"});
}

TEST_F(LayersTest, RefusesUnknownColumnsInFc) {
  const Variable ragged = layers::data("ragged", {-1, -1});
  expect_error([&] { layers::fc(ragged, 3); }, ErrorCode::kInvalidArgument,
               {"'ragged'", "[-1, -1]"});
}

TEST_F(LayersTest, RefusesAFlatteningThatLeavesNothing) {
  expect_error([&] { layers::fc(x_, 3, {.num_flatten_dims = 2}); }, ErrorCode::kInvalidArgument,
               {"num_flatten_dims", "'x'", "1 to 1"});
}

TEST_F(LayersTest, RefusesAnUnknownActivation) {
  expect_error([&] { layers::fc(x_, 3, {.act = "tanhh"}); }, ErrorCode::kInvalidArgument,
               {"fc_0", "did you mean 'tanh'"});
}

TEST_F(LayersTest, RefusesASharedParameterOfAnotherShape) {
  layers::fc(x_, 3, {.param_attr = {.name = "w"}});
  expect_error([&] { layers::fc(x_, 5, {.param_attr = {.name = "w"}}); }, ErrorCode::kShapeMismatch,
               {"'w'", "[4, 3]", "[4, 5]"});
}

TEST_F(LayersTest, RefusesAReshapeThatChangesTheElements) {
  const Variable known = layers::data("k", {2, 6}, DType::kFloat32, {.append_batch_size = false});
  expect_error(
      [&] {
        layers::reshape(known, {5, -1});
      },
      ErrorCode::kShapeMismatch, {"reshape2", "'k'", "[2, 6]", "[5, -1]"});
}

TEST_F(LayersTest, RefusesASplitThatDoesNotComeOut) {
  expect_error([&] { layers::split(x_, 3, 1); }, ErrorCode::kShapeMismatch,
               {"split", "'x'", "3 equal parts", "4"});
}

TEST_F(LayersTest, RefusesAConcatOfDifferentShapes) {
  const Variable z = layers::data("z", {3});
  expect_error(
      [&] {
        layers::concat({x_, z}, 0);
      },
      ErrorCode::kShapeMismatch, {"concat", "'z'", "[-1, 3]"});
}

TEST_F(LayersTest, RefusesMoreBestValuesThanThereAre) {
  expect_error([&] { layers::topk(x_, 5); }, ErrorCode::kShapeMismatch, {"top_k", "'x'", "k = 5"});
}

TEST_F(LayersTest, RefusesAnAxisThatIsNotThere) {
  expect_error([&] { layers::reduce_sum(x_, {.dim = {3}}); }, ErrorCode::kShapeMismatch,
               {"reduce_sum", "'x'", "axis 3"});
}

TEST_F(LayersTest, RefusesAnInputDeclaredTwiceDifferently) {
  expect_error([&] { layers::data("x", {5}); }, ErrorCode::kInvalidArgument,
               {"'x'", "[-1, 4]", "[-1, 5]"});
}

TEST_F(LayersTest, RefusesVariablesOfAnotherProgram) {
  Program other;
  Program other_startup;
  const ProgramGuard guard(other, other_startup);
  expect_error([&] { layers::relu(x_); }, ErrorCode::kInvalidArgument,
               {"layer 'relu'", "'x'", "another program"});
}

TEST_F(LayersTest, RefusesAnEmptyVariable) {
  expect_error([] { layers::mean(Variable()); }, ErrorCode::kInvalidArgument,
               {"layer 'mean'", "empty variable"});
  expect_error([] { Variable() * 2.0; }, ErrorCode::kInvalidArgument, {"operator *"});
}

TEST_F(LayersTest, RefusesANumberOverAnUnknownShape) {
  expect_error([&] { 1.0 / x_; }, ErrorCode::kShapeMismatch, {"'x'", "[-1, 4]"});
}

}  // namespace
}  // namespace fleet::fluid
