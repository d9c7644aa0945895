#include "fluid/optimizer/averages.h"

#include <array>

#include "fluid/executor/executor.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid::optimizer {
namespace {

// A parameter w that SGD moves by -rate * x each step: the loss is mean(w x), x fed.
class AveragesTest : public NetFixture {
 protected:
  AveragesTest() {
    const Variable x = layers::data("x", {1}, DType::kFloat32, {.append_batch_size = false});
    w_ = layers::create_parameter(
        Shape{1}, DType::kFloat32,
        {.attr = {.name = "w", .initializer = initializer::Constant{.value = 2.0}}});
    loss_ = layers::mean(layers::elementwise_mul(w_, x));
  }
  float w() { return executor_.scope().tensor("w").item<float>(); }
  float step(float x) {
    executor_.run(main_, {{"x", Tensor::scalar(x)}});
    return w();
  }

  Variable w_;
  Variable loss_;
  Executor executor_;
};

TEST_F(AveragesTest, TheExponentialAverageIsTheWeightedMeanOfWhatWas) {
  SGD({.learning_rate = 1.0}).minimize(loss_);
  ExponentialMovingAverage ema({.decay = 0.75});
  ema.update();
  executor_.run(startup_);
  double sum = 0;
  double weights = 0;
  for (const float x : {1.0f, -3.0f, 0.5f, 2.0f}) {
    const double now = step(x);
    sum = 0.75 * sum + 0.25 * now;
    weights = 0.75 * weights + 0.25;
  }
  const float last = w();
  {
    const auto applied = ema.apply(executor_);
    EXPECT_NEAR(w(), sum / weights, 1e-6);
  }
  EXPECT_EQ(w(), last);
}

TEST_F(AveragesTest, AWarmUpOfTheDecayEntersTheWeights) {
  const Variable t =
      layers::create_global_var(Shape{1}, 0.0, DType::kFloat32, {.persistable = true, .name = "t"});
  SGD({.learning_rate = 1.0}).minimize(loss_);
  layers::increment(t, 1.0);
  ExponentialMovingAverage ema({.decay = 0.5, .thres_steps = t});
  ema.update();
  executor_.run(startup_);
  double sum = 0;
  double weights = 0;
  for (int i = 1; i <= 20; ++i) {
    const double now = step(static_cast<float>(i % 3));
    const double decay = std::min(0.5, (1.0 + i) / (10.0 + i));
    sum = decay * sum + (1 - decay) * now;
    weights = decay * weights + (1 - decay);
  }
  const auto applied = ema.apply(executor_);
  EXPECT_NEAR(w(), sum / weights, 1e-5);
}

TEST_F(AveragesTest, TheModelAverageIsTheMeanOfItsWindow) {
  SGD({.learning_rate = 1.0}).minimize(loss_);
  ModelAverage average(
      {.average_window_rate = 1.0, .min_average_window = 3, .max_average_window = 3});
  executor_.run(startup_);
  std::array<double, 8> values{};
  for (size_t i = 0; i < values.size(); ++i) values[i] = step(static_cast<float>(i));
  const float last = w();
  // Windows [0,3), [3,6) are full; the last full one and what came since count.
  double sum = 0;
  for (size_t i = 3; i < 8; ++i) sum += values[i];
  {
    const auto applied = average.apply(executor_);
    EXPECT_NEAR(w(), sum / 5, 1e-5);
  }
  EXPECT_EQ(w(), last);
}

TEST_F(AveragesTest, ParametersAreLeftOutWhenTheySaySo) {
  const auto parameter = [](const std::string& name, std::optional<bool> average) {
    return layers::create_parameter(Shape{1}, DType::kFloat32,
                                    {.attr = {.name = name, .do_model_average = average}});
  };
  const Variable product = layers::elementwise_mul(parameter("in", true), parameter("out", false));
  SGD({.learning_rate = 1.0}).minimize(layers::mean(layers::elementwise_mul(w_, product)));
  const ModelAverage window;
  ExponentialMovingAverage decaying;
  decaying.update();
  for (const ParameterAverage* average : {static_cast<const ParameterAverage*>(&window),
                                          static_cast<const ParameterAverage*>(&decaying)}) {
    const Block& apply = average->apply_program().global_block();
    EXPECT_NE(apply.find_var("w"), nullptr);
    EXPECT_NE(apply.find_var("in"), nullptr);
    EXPECT_EQ(apply.find_var("out"), nullptr);
  }
}

TEST_F(AveragesTest, RunningStatisticsAreAveragedToo) {
  const Variable x = layers::data("features", {1});
  const Variable h = layers::batch_norm(x, {.momentum = 0.5, .moving_mean_name = "mean"});
  SGD({.learning_rate = 1.0}).minimize(layers::mean(h) + loss_);
  const ModelAverage window(
      {.average_window_rate = 1.0, .min_average_window = 9, .max_average_window = 9});
  ExponentialMovingAverage decaying({.decay = 0.75});
  decaying.update();
  executor_.run(startup_);
  const auto mean = [this] { return executor_.scope().tensor("mean").item<float>(); };
  double kept = 0;
  double sum = 0;
  double decayed = 0;
  double weights = 0;
  for (const float at : {4.0F, -2.0F, 8.0F}) {
    const Tensor features = Tensor::from(std::vector<float>{at - 1, at + 1}, {2, 1});
    executor_.run(main_, {{"x", Tensor::scalar(0.0F)}, {"features", features}});
    kept = 0.5 * kept + 0.5 * at;
    sum += kept;
    decayed = 0.75 * decayed + 0.25 * kept;
    weights = 0.75 * weights + 0.25;
    EXPECT_NEAR(mean(), kept, 1e-6);
  }
  {
    const auto applied = window.apply(executor_);
    EXPECT_NEAR(mean(), sum / 3, 1e-6);
  }
  {
    const auto applied = decaying.apply(executor_);
    EXPECT_NEAR(mean(), decayed / weights, 1e-5);
  }
  EXPECT_NEAR(mean(), kept, 1e-6);
}

TEST_F(AveragesTest, RunningStatisticsAreLeftOutWhenTheLayerSaysSo) {
  const Variable x = layers::data("features", {3});
  layers::batch_norm(x, {.moving_mean_name = "mean",
                         .moving_variance_name = "variance",
                         .do_model_average_for_mean_and_var = false});
  const ModelAverage window;
  ExponentialMovingAverage decaying;
  decaying.update();
  for (const ParameterAverage* average : {static_cast<const ParameterAverage*>(&window),
                                          static_cast<const ParameterAverage*>(&decaying)}) {
    const Block& apply = average->apply_program().global_block();
    EXPECT_NE(apply.find_var("batch_norm_0.w_0"), nullptr);
    EXPECT_EQ(apply.find_var("mean"), nullptr);
    EXPECT_EQ(apply.find_var("variance"), nullptr);
  }
}

TEST_F(AveragesTest, PartsOfNormalisedWeightsAreLeftOutUnlessAskedFor) {
  const Variable x = layers::data("features", {3}, DType::kFloat32);
  layers::fc(x, 2, {.param_attr = WeightNormParamAttr(1, {.name = "usual"})});
  layers::fc(x, 2,
             {.param_attr = WeightNormParamAttr(1, {.name = "asked", .do_model_average = true})});
  EXPECT_FALSE(block().var("usual_v").do_model_average);
  EXPECT_FALSE(block().var("usual_g").do_model_average);
  EXPECT_TRUE(block().var("asked_v").do_model_average);
  EXPECT_TRUE(block().var("asked_g").do_model_average);
}

TEST_F(AveragesTest, ALookaheadGoesPartOfTheWayEveryKSteps) {
  SGD inner({.learning_rate = 1.0});
  Lookahead lookahead(inner, {.alpha = 0.25, .k = 3});
  lookahead.minimize(loss_);
  executor_.run(startup_);
  double fast = 2.0;
  double slow = 2.0;
  for (int i = 1; i <= 10; ++i) {
    fast -= i;
    if (i % 3 == 0) {
      slow += 0.25 * (fast - slow);
      fast = slow;
    }
    EXPECT_NEAR(step(static_cast<float>(i)), fast, 1e-5) << "step " << i;
  }
}

TEST_F(AveragesTest, OptionsOutOfRangeAreRefused) {
  expect_error([] { ExponentialMovingAverage ema({.decay = 1.0}); }, ErrorCode::kInvalidArgument,
               {"decay", "0 <= decay < 1"});
  SGD inner({.learning_rate = 1.0});
  expect_error([&] { Lookahead lookahead(inner, {.k = 0}); }, ErrorCode::kInvalidArgument,
               {"k >= 1"});
}

}  // namespace
}  // namespace fleet::fluid::optimizer
