#include "fluid/optimizer/optimizer.h"

#include <array>
#include <cmath>
#include <functional>

#include "fluid/executor/executor.h"
#include "fluid/ops/append.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid::optimizer {
namespace {

using testing::ElementsAre;

class OptimizerTest : public NetFixture {
 protected:
  // Names of what the startup program fills, last one first (initialisers stand in front).
  std::vector<std::string> filled_in_order() {
    std::vector<std::string> names;
    const Block& startup = startup_.global_block();
    for (size_t i = startup.op_count(); i-- > 0;) {
      names.push_back(startup.op(i).output("Out").front());
    }
    return names;
  }

  Variable loss(const layers::FcOptions& options = {}) {
    return layers::mean(layers::fc(layers::data("x", {4}), 3, options));
  }
};

TEST_F(OptimizerTest, UpdatesFollowTheParametersNames) {
  const auto result = SGD({.learning_rate = 0.5}).minimize(loss());
  ASSERT_EQ(result.optimize_ops.size(), 2u);
  EXPECT_THAT(result.optimize_ops[0]->output("ParamOut"), ElementsAre("fc_0.b_0"));
  EXPECT_THAT(result.optimize_ops[1]->output("ParamOut"), ElementsAre("fc_0.w_0"));
  EXPECT_THAT(result.optimize_ops[1]->role_var, ElementsAre("fc_0.w_0", "fc_0.w_0@GRAD"));
  EXPECT_EQ(result.optimize_ops[1]->role, OpRole::kOptimize);
  EXPECT_EQ(result.params_grads[0].param.name(), "fc_0.w_0");
  EXPECT_TRUE(block().var("learning_rate_0").persistable);
  EXPECT_NO_THROW(verify(main_));
  EXPECT_NO_THROW(verify(startup_));
}

TEST_F(OptimizerTest, StateIsNamedAndMadeInOrder) {
  Adam({.beta1 = 0.8}).minimize(loss({.bias_attr = no_bias()}));
  EXPECT_THAT(filled_in_order(), ElementsAre("fc_0.w_0", "fc_0.w_0_moment1_0", "fc_0.w_0_moment2_0",
                                             "fc_0.w_0_beta1_pow_acc_0", "fc_0.w_0_beta2_pow_acc_0",
                                             "learning_rate_0"));
  const Operator& beta1 = startup_.global_block().op(2);
  EXPECT_EQ(beta1.attrs.at("op_device"), Attribute(std::string("cpu")));
  EXPECT_EQ(beta1.attrs.at("value"), Attribute(static_cast<double>(0.8f)));
  EXPECT_EQ(block().var("fc_0.w_0_beta1_pow_acc_0").shape, (Shape{1}));
  EXPECT_NO_THROW(verify(main_));
}

// The values of a table [5, 2] after some steps that take rows 1, 3, 1.
std::vector<float> trained_table(const std::function<AdamOptions()>& options, bool is_sparse) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const Variable ids = layers::data("ids", {1}, DType::kInt64);
  const Variable rows =
      layers::embedding(ids, {5, 2}, {.is_sparse = is_sparse, .param_attr = {.name = "table"}});
  Adam(options()).minimize(layers::mean(layers::square(rows) + rows));
  Executor executor;
  executor.run(startup);
  const Tensor taken = Tensor::from(std::vector<int64_t>{1, 3, 1}, {3, 1});
  for (int step = 0; step < 4; ++step) executor.run(main, {{"ids", taken}});
  const auto values = executor.scope().tensor("table").values<float>();
  return {values.begin(), values.end()};
}

TEST(AdamDecays, OfVariablesAreThoseOfNumbers) {
  for (const bool is_sparse : {false, true}) {
    for (const bool lazy : {false, true}) {
      const auto known = [lazy] { return AdamOptions{.learning_rate = 0.1, .lazy_mode = lazy}; };
      const auto given = [lazy] {
        return AdamOptions{.learning_rate = layers::fill_constant({1}, DType::kFloat32, 0.1),
                           .beta1 = layers::fill_constant({1}, DType::kFloat32, 0.9),
                           .beta2 = layers::fill_constant({1}, DType::kFloat32, 0.999),
                           .lazy_mode = lazy};
      };
      EXPECT_EQ(trained_table(given, is_sparse), trained_table(known, is_sparse));
    }
  }
}

TEST_F(OptimizerTest, AdamTakesItsDecaysAnewInEachStep) {
  const Variable x = layers::data("x", {1}, DType::kFloat32, {.append_batch_size = false});
  const Variable w = layers::create_parameter(
      {1}, DType::kFloat32,
      {.attr = {.name = "w", .initializer = initializer::Constant{.value = 2.0}}});
  const auto given = [](const char* name) {
    return layers::data(name, {1}, DType::kFloat32, {.append_batch_size = false});
  };
  Adam({.learning_rate = 0.1, .beta1 = given("beta1"), .beta2 = given("beta2"), .epsilon = 1e-3})
      .minimize(layers::mean(w * x));
  Executor executor;
  executor.run(startup_);
  double p = 2.0;
  double m = 0;
  double v = 0;
  double power1 = 0.9;
  double power2 = 0.999;
  for (const auto& [g, beta1, beta2] : std::vector<std::array<float, 3>>{
           {1.5F, 0.5F, 0.75F}, {-1.0F, 0.875F, 0.5F}, {3.0F, 0.25F, 0.9375F}}) {
    executor.run(main_, {{"x", Tensor::from(std::vector<float>{g}, {1})},
                         {"beta1", Tensor::from(std::vector<float>{beta1}, {1})},
                         {"beta2", Tensor::from(std::vector<float>{beta2}, {1})}});
    m = beta1 * m + (1.0 - beta1) * g;
    v = beta2 * v + (1.0 - beta2) * g * g;
    p -= 0.1 * std::sqrt(1.0 - power2) / (1.0 - power1) * m / (std::sqrt(v) + 1e-3);
    power1 *= beta1;
    power2 *= beta2;
    EXPECT_NEAR(executor.scope().tensor("w").item<float>(), p, 1e-5);
  }
}

TEST_F(OptimizerTest, MomentumCarriesItsNumbers) {
  Momentum({.momentum = 0.7, .use_nesterov = true}).minimize(loss());
  const Operator& op = op_of("momentum");
  EXPECT_EQ(op.attrs.at("mu"), Attribute(static_cast<double>(0.7f)));
  EXPECT_EQ(op.attrs.at("use_nesterov"), Attribute(true));
  EXPECT_THAT(op.output("VelocityOut"), ElementsAre("fc_0.b_0_velocity_0"));
}

TEST_F(OptimizerTest, AParametersFactorScalesTheRate) {
  SGD().minimize(loss({.param_attr = {.learning_rate = 0.1}, .bias_attr = no_bias()}));
  const Operator& scale = op_of("scale");
  EXPECT_EQ(scale.role, OpRole::kOptimize | OpRole::kLrSched);
  EXPECT_TRUE(scale.role_var.empty());
  EXPECT_EQ(op_of("sgd").input("LearningRate"), scale.output("Out"));
}

TEST_F(OptimizerTest, AScheduleIsUsedAsItIs) {
  const Variable cost = loss();
  const Variable rate = layers::exponential_decay(0.1, 10, 0.5);
  SGD({.learning_rate = rate}).minimize(cost);
  EXPECT_THAT(op_of("sgd").input("LearningRate"), ElementsAre(rate.name()));
  EXPECT_EQ(block().find_var("learning_rate_0"), nullptr);
}

TEST_F(OptimizerTest, TheRateHasTheParametersElementType) {
  const Variable x = layers::data("x", {4}, DType::kFloat64);
  SGD().minimize(layers::mean(layers::fc(x, 3)));
  EXPECT_EQ(block().var("learning_rate_0").dtype, DType::kFloat64);
  EXPECT_NO_THROW(verify(main_));
}

TEST_F(OptimizerTest, AScheduleIsCastToTheParametersElementType) {
  const Variable x = layers::data("x", {4}, DType::kFloat64);
  const Variable cost = layers::mean(layers::fc(x, 3));
  SGD({.learning_rate = layers::exponential_decay(0.1, 10, 0.5)}).minimize(cost);
  const std::string used = op_of("sgd").input("LearningRate").front();
  EXPECT_EQ(block().var(used).dtype, DType::kFloat64);
  for (const auto& op : block().ops()) {
    if (op->type == "cast") {
      EXPECT_EQ(op->role, OpRole::kLrSched);
    }
  }
  EXPECT_NO_THROW(verify(main_));
}

TEST_F(OptimizerTest, ClipComesBeforeDecayBeforeUpdate) {
  const Variable cost = loss({.bias_attr = no_bias()});
  const size_t forward = block().op_count();
  SGD({.regularization = regularizer::L2Decay(0.1), .grad_clip = clip::GradientClipByValue(1.0)})
      .minimize(cost);
  const auto types = op_types(forward);
  EXPECT_THAT(std::vector<std::string>(types.begin() + 3, types.end()),
              ElementsAre("clip", "scale", "sum", "sgd"));
  EXPECT_THAT(op_of("sgd").input("Grad"), ElementsAre("clip_0.tmp_0"));
}

TEST_F(OptimizerTest, FrozenParametersGetNeitherGradientNorState) {
  const Variable cost = loss({.param_attr = {.trainable = false}});
  const auto result = Adam().minimize(cost);
  EXPECT_EQ(result.params_grads.size(), 1u);
  EXPECT_EQ(block().find_var("fc_0.w_0@GRAD"), nullptr);
  EXPECT_EQ(block().find_var("fc_0.w_0_moment1_0"), nullptr);
}

TEST_F(OptimizerTest, OneOptimizerServesSeveralPrograms) {
  Momentum optimizer;
  optimizer.minimize(loss());
  Program other;
  Program other_startup;
  {
    const ProgramGuard guard(other, other_startup);
    const unique_name::Guard names;
    optimizer.minimize(loss());
  }
  EXPECT_NE(other.global_block().find_var("fc_0.w_0_velocity_0"), nullptr);
  EXPECT_NO_THROW(verify(other));
}

TEST_F(OptimizerTest, AStartupProgramOfItsOwnIsUsed) {
  const Variable cost = loss();
  Program startup;
  SGD().minimize(cost, {.startup_program = &startup});
  EXPECT_EQ(startup.global_block().op_count(), 1u);
  EXPECT_EQ(startup_.global_block().find_var("learning_rate_0"), nullptr);
}

TEST_F(OptimizerTest, RefusesALossThatNoParameterReaches) {
  const Variable cost = layers::mean(layers::data("x", {4}));
  expect_error([&] { SGD().minimize(cost); }, ErrorCode::kInvalidProgram,
               {"sgd", "mean_0.tmp_0", "nothing to train"});
}

TEST_F(OptimizerTest, RefusesARateOfAnotherProgram) {
  const Variable rate = layers::exponential_decay(0.1, 10, 0.5);
  Program other;
  Program other_startup;
  const ProgramGuard guard(other, other_startup);
  const Variable cost = loss();
  expect_error([&] { SGD({.learning_rate = rate}).minimize(cost); }, ErrorCode::kInvalidArgument,
               {"sgd", rate.name()});
}

TEST_F(OptimizerTest, RefusesDecaysThatDoNotFit) {
  const Variable cost = loss();
  expect_error([&] { Adam({.beta1 = Variable()}).minimize(cost); }, ErrorCode::kInvalidArgument,
               {"adam", "Beta1Tensor", "empty"});
  const Variable two = layers::fill_constant({2}, DType::kFloat32, 0.9);
  expect_error([&] { Adam({.beta2 = two}).minimize(cost); }, ErrorCode::kShapeMismatch,
               {"adam", "Beta2Tensor", "one number", "[2]"});
  const Variable wide = layers::fill_constant({1}, DType::kFloat64, 0.9);
  expect_error([&] { Adam({.beta1 = wide}).minimize(cost); }, ErrorCode::kDTypeMismatch,
               {"adam", wide.name(), "float32", "float64"});
}

TEST_F(OptimizerTest, RefusesAnEmptyLoss) {
  expect_error([] { SGD().minimize(Variable()); }, ErrorCode::kInvalidArgument, {"sgd"});
}

}  // namespace
}  // namespace fleet::fluid::optimizer
