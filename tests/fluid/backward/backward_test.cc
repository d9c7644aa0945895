#include "fluid/backward/backward.h"

#include "fluid/backward/gradient_clip.h"
#include "fluid/backward/regularizer.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;

std::vector<std::string> names_of_pairs(const std::vector<ParamGrad>& pairs) {
  std::vector<std::string> names;
  names.reserve(pairs.size());
  for (const auto& [param, grad] : pairs) names.push_back(param.name() + "->" + grad.name());
  return names;
}

class BackwardTest : public NetFixture {
 protected:
  BackwardTest() : x_(layers::data("x", {4})) {}
  Variable x_;
};

TEST_F(BackwardTest, GivesEveryTrainableParameterItsGradient) {
  const Variable h = layers::fc(x_, 3, {.param_attr = {.name = "w"}, .bias_attr = no_bias()});
  const Variable o = layers::fc(h, 2, {.param_attr = {.trainable = false}});
  const auto pairs = append_backward(layers::mean(o));
  EXPECT_THAT(names_of_pairs(pairs), ElementsAre("w->w@GRAD", "fc_1.b_0->fc_1.b_0@GRAD"));
  EXPECT_EQ(pairs[0].grad.shape(), (Shape{4, 3}));
  EXPECT_THAT(op_of("mean").role, OpRole::kForward | OpRole::kLoss);
  EXPECT_THAT(op_of("fill_constant").role, OpRole::kBackward | OpRole::kLoss);
}

TEST_F(BackwardTest, SumsFanOutRightBeforeItsFirstReader) {
  const Variable h = layers::tanh(layers::fc(x_, 3));
  // One by one: C++ leaves the order of a call's arguments open.
  const Variable a = layers::relu(h);
  const Variable b = layers::square(h);
  const Variable loss = layers::mean(layers::elementwise_add(a, b));
  const size_t forward = block().op_count();
  append_backward(loss);
  EXPECT_THAT(op_types(forward),
              ElementsAre("fill_constant", "mean_grad", "elementwise_add_grad", "square_grad",
                          "relu_grad", "sum", "tanh_grad", "elementwise_add_grad", "mul_grad"));
  EXPECT_THAT(op_of("sum").input("X"), ElementsAre("tanh_0.tmp_0@GRAD@RENAME@block0@0",
                                                   "tanh_0.tmp_0@GRAD@RENAME@block0@1"));
}

TEST_F(BackwardTest, WhatALabelIsComputedFromGetsNoPartForIt) {
  const Variable h = layers::fc(x_, 3);
  const Variable sum = layers::reduce_sum(h, {.dim = {1}, .keep_dim = true});
  const Variable label = layers::cast(layers::clip(sum, 0, 2), DType::kInt64);
  const Variable loss = layers::mean(layers::softmax_with_cross_entropy(layers::relu(h), label));
  const size_t forward = block().op_count();
  append_backward(loss);
  EXPECT_THAT(op_types(forward),
              ElementsAre("fill_constant", "mean_grad", "softmax_with_cross_entropy_grad",
                          "relu_grad", "elementwise_add_grad", "mul_grad"));
}

TEST_F(BackwardTest, AVariableUsedTwiceByOneOpHasTwoParts) {
  const Variable h = layers::fc(x_, 3, {.bias_attr = no_bias()});
  append_backward(layers::mean(layers::elementwise_mul(h, h)));
  const Operator& grad = op_of("elementwise_mul_grad");
  EXPECT_THAT(grad.output("X@GRAD"), ElementsAre("fc_0.tmp_0@GRAD@RENAME@block0@0"));
  EXPECT_THAT(grad.output("Y@GRAD"), ElementsAre("fc_0.tmp_0@GRAD@RENAME@block0@1"));
  EXPECT_THAT(op_of("sum").output("Out"), ElementsAre("fc_0.tmp_0@GRAD"));
}

TEST_F(BackwardTest, ASharedParametersSumCarriesItsRoleVariables) {
  const ParamAttr shared{.name = "w"};
  const Variable h = layers::fc(x_, 4, {.param_attr = shared, .bias_attr = no_bias()});
  const Variable o = layers::fc(h, 4, {.param_attr = shared, .bias_attr = no_bias()});
  append_backward(layers::mean(o));
  EXPECT_THAT(op_of("sum").role_var, ElementsAre("w", "w@GRAD"));
  EXPECT_EQ(block().ops().back()->type, "sum");
  EXPECT_EQ(startup_.global_block().op_count(), 1u);
}

TEST_F(BackwardTest, UnusedPartsGetZeros) {
  const auto parts = layers::split(layers::fc(x_, 6), 3, 1);
  append_backward(layers::mean(parts[1]));
  EXPECT_EQ(op_of("concat").role, OpRole::kBackward);
  int zeros = 0;
  for (const std::string& type : op_types()) zeros += type == "fill_zeros_like" ? 1 : 0;
  EXPECT_EQ(zeros, 2);
}

TEST_F(BackwardTest, StopGradientCutsWhatIsBelow) {
  const Variable h = layers::fc(x_, 3);
  h.set_stop_gradient(true);
  const auto pairs = append_backward(layers::mean(layers::fc(h, 2)));
  EXPECT_THAT(names_of_pairs(pairs),
              ElementsAre("fc_1.w_0->fc_1.w_0@GRAD", "fc_1.b_0->fc_1.b_0@GRAD"));
  EXPECT_EQ(block().find_var("fc_0.w_0@GRAD"), nullptr);
}

TEST_F(BackwardTest, OptionsNarrowWhatIsReturned) {
  const Variable loss = layers::mean(layers::fc(layers::fc(x_, 3), 2));
  const auto pairs =
      append_backward(loss, {.parameter_list = {{"fc_1.w_0"}}, .no_grad_set = {"fc_0.b_0"}});
  EXPECT_THAT(names_of_pairs(pairs), ElementsAre("fc_1.w_0->fc_1.w_0@GRAD"));
  EXPECT_EQ(block().find_var("fc_0.b_0@GRAD"), nullptr);
  EXPECT_NE(block().find_var("fc_0.w_0@GRAD"), nullptr);
}

TEST_F(BackwardTest, ASecondCallMakesVariablesOfItsOwn) {
  const Variable h = layers::fc(x_, 3, {.bias_attr = no_bias()});
  const Variable first = layers::mean(h);
  const Variable second = layers::mean(layers::square(h));
  EXPECT_THAT(names_of_pairs(append_backward(first)), ElementsAre("fc_0.w_0->fc_0.w_0@GRAD"));
  EXPECT_THAT(names_of_pairs(append_backward(second)), ElementsAre("fc_0.w_0->fc_0.w_0@GRAD_0"));
}

TEST_F(BackwardTest, RefusesALossThatIsNotOneNumber) {
  const Variable h = layers::fc(x_, 3);
  expect_error([&] { append_backward(h); }, ErrorCode::kShapeMismatch,
               {"fc_0.tmp_1", "shape [1]", "[-1, 3]", "layers::mean"});
}

TEST_F(BackwardTest, RefusesALossThatNothingMakes) {
  const Variable fed = layers::data("loss", {1}, DType::kFloat32, {.append_batch_size = false});
  expect_error([&] { append_backward(fed); }, ErrorCode::kInvalidProgram, {"'loss'"});
}

TEST_F(BackwardTest, RefusesUnknownNamesInItsOptions) {
  const Variable loss = layers::mean(layers::fc(x_, 3));
  expect_error([&] { append_backward(loss, {.no_grad_set = {"fc_0.w_1"}}); },
               ErrorCode::kUnknownName, {"fc_0.w_1"});
  expect_error([&] { append_backward(loss, {.parameter_list = {{"w"}}}); }, ErrorCode::kUnknownName,
               {"'w'"});
}

TEST_F(BackwardTest, DecayIsAddedToTheGradientInPlace) {
  const ParamAttr own{.name = "w", .regularizer = regularizer::L1Decay(0.5)};
  const auto pairs = append_backward(layers::mean(layers::fc(x_, 3, {.param_attr = own})));
  const size_t before = block().op_count();
  append_regularization(pairs, regularizer::L2Decay(0.1));
  EXPECT_THAT(op_types(before), ElementsAre("sign", "scale", "sum", "scale", "sum"));
  EXPECT_THAT(block().op(before + 2).output("Out"), ElementsAre("w@GRAD"));
  EXPECT_THAT(block().op(before + 2).role_var, ElementsAre("w", "w@GRAD"));
}

TEST_F(BackwardTest, TheGlobalNormIsOneFactorForAll) {
  const auto pairs = append_backward(layers::mean(layers::fc(x_, 3)));
  const size_t before = block().op_count();
  const auto clipped = append_gradient_clip(pairs, clip::GradientClipByGlobalNorm(2.0));
  EXPECT_THAT(
      op_types(before),
      ElementsAre("square", "reduce_sum", "square", "reduce_sum", "sum", "sqrt", "fill_constant",
                  "elementwise_max", "elementwise_div", "elementwise_mul", "elementwise_mul"));
  EXPECT_THAT(names_of_pairs(clipped), ElementsAre("fc_0.w_0->elementwise_mul_0.tmp_0",
                                                   "fc_0.b_0->elementwise_mul_1.tmp_0"));
  EXPECT_THAT(block().op(before).role_var, ElementsAre("fc_0.w_0", "elementwise_mul_0.tmp_0"));
}

TEST_F(BackwardTest, NotedClipsTouchTheirOwnParametersOnly) {
  const ParamAttr own{.name = "w", .gradient_clip = clip::GradientClipByValue(0.5)};
  const auto pairs = append_backward(layers::mean(layers::fc(x_, 3, {.param_attr = own})));
  const size_t before = block().op_count();
  const auto clipped = append_noted_clips(pairs);
  EXPECT_THAT(op_types(before), ElementsAre("clip"));
  EXPECT_THAT(block().op(before).name_scope, testing::HasSubstr("@CLIP"));
  EXPECT_THAT(names_of_pairs(clipped), ElementsAre("w->clip_0.tmp_0", "fc_0.b_0->fc_0.b_0@GRAD"));
}

TEST_F(BackwardTest, SetGradientClipTakesParametersAndTheirNames) {
  layers::mean(layers::fc(
      x_, 3, {.param_attr = ParamAttr{.name = "w"}, .bias_attr = ParamAttr{.name = "b"}}));
  const Variable w(block(), block().var("w"));
  const auto clipped = [&] {
    std::vector<std::string> names;
    for (const VarDesc* param : block().parameters()) {
      if (param->gradient_clip) names.push_back(param->name);
      block().var(param->name).gradient_clip = {};
    }
    return names;
  };
  const Penalty clip = clip::GradientClipByValue(0.5);
  clip::set_gradient_clip(clip, {"b"});
  EXPECT_THAT(clipped(), ElementsAre("b"));
  clip::set_gradient_clip(clip, {w});
  EXPECT_THAT(clipped(), ElementsAre("w"));
  clip::set_gradient_clip(clip, {"b", "w"});
  EXPECT_THAT(clipped(), testing::UnorderedElementsAre("b", "w"));
  clip::set_gradient_clip(clip, {w, "b"});
  EXPECT_THAT(clipped(), testing::UnorderedElementsAre("b", "w"));
  clip::set_gradient_clip(clip, std::vector<std::string>{"w"}, block().program());
  EXPECT_THAT(clipped(), ElementsAre("w"));
  clip::set_gradient_clip(clip, std::vector<Variable>{w});
  EXPECT_THAT(clipped(), ElementsAre("w"));
  clip::set_gradient_clip(clip);
  EXPECT_THAT(clipped(), testing::UnorderedElementsAre("b", "w"));
}

TEST_F(BackwardTest, MistakesOfSetGradientClipAreNamed) {
  const Variable loss = layers::mean(layers::fc(x_, 3));
  const Penalty clip = clip::GradientClipByNorm(1.0);
  expect_error([&] { clip::set_gradient_clip(clip, {"fc_0.w_1"}); }, ErrorCode::kUnknownName,
               {"fc_0.w_1", "did you mean 'fc_0."});
  expect_error([&] { clip::set_gradient_clip(clip, {loss}); }, ErrorCode::kInvalidArgument,
               {loss.name(), "is for parameters", "set_error_clip"});
  expect_error([&] { clip::set_gradient_clip(clip, {Variable()}); }, ErrorCode::kInvalidArgument,
               {"Variable()"});
  expect_error([&] { clip::set_gradient_clip({.kind = "ClipByLuck", .values = {}}); },
               ErrorCode::kUnknownName, {"ClipByLuck", "set_gradient_clip"});
  block().append_op({.type = "sgd",
                     .inputs = {{"Param", {"fc_0.w_0"}}},
                     .outputs = {},
                     .attrs = {},
                     .role = OpRole::kOptimize,
                     .role_var = {},
                     .name_scope = {}});
  expect_error([&] { clip::set_gradient_clip(clip, {"fc_0.w_0"}); }, ErrorCode::kPrecondition,
               {"'fc_0.w_0' after minimize"});
}

TEST_F(BackwardTest, NotedGlobalNormsMustAgree) {
  const ParamAttr w{.name = "w", .gradient_clip = clip::GradientClipByGlobalNorm(1.0)};
  const ParamAttr b{.name = "b", .gradient_clip = clip::GradientClipByGlobalNorm(2.0)};
  const auto pairs =
      append_backward(layers::mean(layers::fc(x_, 3, {.param_attr = w, .bias_attr = b})));
  expect_error([&] { append_noted_clips(pairs); }, ErrorCode::kInvalidArgument,
               {"'b'", "clip_norm 1", "2"});
}

TEST_F(BackwardTest, UnknownPenaltiesAreRefused) {
  const auto pairs = append_backward(layers::mean(layers::fc(x_, 3)));
  const Penalty unknown{.kind = "L3Decay", .values = {{"regularization_coeff", 1.0}}};
  expect_error([&] { append_regularization(pairs, unknown); }, ErrorCode::kUnknownName,
               {"L3Decay"});
  expect_error([&] { append_gradient_clip(pairs, {.kind = "ClipByLuck", .values = {}}); },
               ErrorCode::kUnknownName, {"ClipByLuck"});
}

}  // namespace
}  // namespace fleet::fluid
