// Training in mixed precision, beside training in float32.
#include "fluid/mixed_precision/mixed_precision.h"

#include <cmath>
#include <functional>

#include "base/philox.h"
#include "fluid/executor/executor.h"
#include "fluid/kernels/finite_watch.h"
#include "fluid/optimizer/averages.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid::mixed_precision {
namespace {

constexpr int64_t kRows = 32;

// Four classes that a net of two layers tells apart.
Feed batch(int step) {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int64_t row = 0; row < kRows; ++row) {
    const auto at = static_cast<uint64_t>(step * kRows + row);
    const float a = uniform_float(RandomKey{5, 1}, 2 * at) - 0.5f;
    const float b = uniform_float(RandomKey{5, 1}, 2 * at + 1) - 0.5f;
    x.insert(x.end(), {a, b, a * b, 1.0f});
    y.push_back((a > 0 ? 1 : 0) + (b > 0 ? 2 : 0));
  }
  return {{"x", Tensor::from(x, {kRows, 4})}, {"y", Tensor::from(y, {kRows, 1})}};
}

Variable classify() {
  const Variable x = layers::data("x", {4});
  const Variable y = layers::data("y", {1}, DType::kInt64);
  const Variable hidden = layers::fc(x, 16, {.act = "relu"});
  const Variable dropped = layers::dropout(hidden, 0.1);
  return layers::mean(layers::softmax_with_cross_entropy(layers::fc(dropped, 4), y));
}

using Minimize = std::function<void(optimizer::Optimizer&, const Variable& loss)>;

std::vector<float> losses(const Minimize& minimize, int shards = 1, int steps = 60) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  main.set_random_seed(3);
  startup.set_random_seed(3);
  const Variable loss = classify();
  optimizer::Adam adam({.learning_rate = 0.01});
  minimize(adam, loss);
  Executor exe(CPUPlace(), {.logical_shards = shards});
  exe.run(startup);
  std::vector<float> all;
  all.reserve(static_cast<size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    all.push_back(exe.run(main, batch(step), {loss.name()})[0].item<float>());
  }
  return all;
}

void in_floats(optimizer::Optimizer& adam, const Variable& loss) {
  adam.minimize(loss);
}

Minimize in(DType dtype) {
  return [dtype](optimizer::Optimizer& adam, const Variable& loss) {
    decorate(adam, {.dtype = dtype}).minimize(loss);
  };
}

TEST(MixedPrecision, LearnsWhatFloatsLearn) {
  const float wanted = losses(in_floats).back();
  EXPECT_LT(wanted, 0.7f);
  EXPECT_NEAR(losses(in(DType::kFloat16)).back(), wanted, 0.01);
  EXPECT_NEAR(losses(in(DType::kBFloat16)).back(), wanted, 0.05);
}

TEST(MixedPrecision, TheLossThatIsFetchedIsTheMeanOfTheShards) {
  const float wanted = losses(in_floats, 4).front();
  EXPECT_NEAR(losses(in(DType::kFloat16), 4).front(), wanted, 1e-3);
  EXPECT_NEAR(losses(in(DType::kFloat16), 4).back(), losses(in_floats, 4).back(), 0.01);
}

TEST(MixedPrecision, TheLossIsFloat32WhateverTheListsSay) {
  const float wanted = losses(in_floats, 4).front();
  const auto listed = [](optimizer::Optimizer& adam, const Variable& loss) {
    decorate(adam, {.lists = {.custom_white_list = {"mean"}}}).minimize(loss);
    EXPECT_EQ(loss.dtype(), DType::kFloat32);
  };
  EXPECT_NEAR(losses(listed, 4).front(), wanted, 2e-3);
}

TEST(MixedPrecision, RecomputesToTheSameBits) {
  const auto recomputing = [](optimizer::Optimizer& adam, const Variable& loss) {
    optimizer::MinimizeOptions options;
    options.checkpoints = {"fc_0.tmp_2"};
    decorate(adam).minimize(loss, options);
  };
  EXPECT_EQ(losses(recomputing), losses(in(DType::kFloat16)));
}

TEST(MixedPrecision, LookaheadTakesIt) {
  const auto looking = [](optimizer::Optimizer& adam, const Variable& loss) {
    auto mixed = decorate(adam);
    optimizer::Lookahead(mixed).minimize(loss);
  };
  EXPECT_LT(losses(looking).back(), 1.2f);
}

class MixedPrecisionNet : public NetFixture {};

TEST_F(MixedPrecisionNet, ConvolutionsTrain) {
  const Variable image = layers::data("image", {1, 8, 8});
  const Variable y = layers::data("y", {1}, DType::kInt64);
  const Variable a = layers::conv2d(image, 4, 3);
  const Variable b = layers::pool2d(layers::batch_norm(a, {.act = "relu"}), {.pool_size = {2, 2}});
  const Variable loss = layers::mean(layers::softmax_with_cross_entropy(layers::fc(b, 3), y));
  startup_.set_random_seed(4);
  optimizer::Momentum momentum({.learning_rate = 0.1});
  auto mixed = decorate(momentum);
  mixed.minimize(loss);
  Executor exe;
  exe.run(startup_);
  std::vector<float> pixels;
  for (uint64_t i = 0; i < 6 * 64; ++i) pixels.push_back(uniform_float(RandomKey{1, 9}, i));
  const Feed feed = {{"image", Tensor::from(pixels, {6, 1, 8, 8})},
                     {"y", Tensor::from(std::vector<int64_t>{0, 1, 2, 0, 1, 2}, {6, 1})}};
  const float first = exe.run(main_, feed, {loss.name()})[0].item<float>();
  float last = first;
  for (int i = 0; i < 30; ++i) last = exe.run(main_, feed, {loss.name()})[0].item<float>();
  EXPECT_LT(last, 0.5f * first);
  EXPECT_EQ(mixed.scaled_loss().name(), "tmp_0");
}

// The bias is so large that halves overflow; what the optimizer then does is skip.
struct Overflowing {
  Program main;
  Program startup;

  explicit Overflowing(double init_loss_scaling) {
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable x = layers::data("x", {2});
    const Variable loss = layers::mean(layers::fc(x, 1));
    optimizer::SGD sgd({.learning_rate = 0.1});
    decorate(sgd,
             {.scaling = {.init_loss_scaling = init_loss_scaling, .decr_every_n_nan_or_inf = 1}})
        .minimize(loss);
  }
};

class Findings final : public FiniteWatch {
 public:
  void on_nonfinite(const Nonfinite& found) override { all.push_back(found); }
  std::vector<Nonfinite> all;
};

std::vector<Nonfinite> found(double init_loss_scaling, int steps) {
  const Overflowing net(init_loss_scaling);
  Findings findings;
  Executor exe;
  exe.run(net.startup);
  exe.set_finite_watch(&findings);
  for (int i = 0; i < steps; ++i) {
    exe.run(net.main, {{"x", Tensor::from(std::vector<float>{1e6f, 1.0f}, {1, 2})}});
  }
  return findings.all;
}

TEST(MixedPrecisionWatch, StepsThatAreSkippedDoNotCount) {
  EXPECT_TRUE(found(32768, 3).empty());
}

TEST(MixedPrecisionWatch, StepsThatNoFactorMendsDo) {
  const auto all = found(1, 2);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].what, Nonfinite::What::kGradients);
  EXPECT_EQ(all[0].step, 0u);
  EXPECT_FALSE(std::isfinite(all[0].value));
}

TEST_F(MixedPrecisionNet, WhatCannotBeDecoratedIsNamed) {
  optimizer::SGD sgd;
  auto mixed = decorate(sgd);
  expect_error([&] { decorate(mixed); }, ErrorCode::kInvalidArgument, {"decorated already"});
  optimizer::DGCMomentum dgc({.learning_rate = 0.1});
  expect_error([&] { decorate(dgc); }, ErrorCode::kInvalidArgument, {"DGCMomentum"});
  expect_error([&] { decorate(sgd, {.dtype = DType::kFloat64}); }, ErrorCode::kInvalidArgument,
               {"float16 or bfloat16", "float64"});
  const Variable x = layers::data("x", {2}, DType::kFloat64);
  expect_error([&] { mixed.minimize(layers::mean(x)); }, ErrorCode::kDTypeMismatch, {"float32"});
}

}  // namespace
}  // namespace fleet::fluid::mixed_precision
