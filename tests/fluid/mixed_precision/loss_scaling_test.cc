#include "fluid/mixed_precision/loss_scaling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "fluid/executor/executor.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid::mixed_precision {
namespace {

// What the release's blocks compute, as arithmetic.
class Reference {
 public:
  explicit Reference(const LossScalingOptions& options)
      : options_(options), factor_(static_cast<float>(options.init_loss_scaling)) {}

  float after(bool finite) {
    int& count = finite ? good_ : bad_;
    (finite ? bad_ : good_) = 0;
    const int most = finite ? options_.incr_every_n_steps : options_.decr_every_n_nan_or_inf;
    if (++count <= most) return factor_;
    good_ = bad_ = 0;
    const auto ratio = static_cast<float>(finite ? options_.incr_ratio : options_.decr_ratio);
    const float next = factor_ * ratio;
    if (!finite) return factor_ = std::max(next, 1.0f);
    if (std::isfinite(next)) factor_ = next;
    return factor_;
  }

 private:
  LossScalingOptions options_;
  float factor_;
  int good_ = 0;
  int bad_ = 0;
};

// A net whose gradient is finite when what is fed is.
class LossScalingTest : public NetFixture {
 protected:
  void build(const LossScalingOptions& options, bool is_sparse = false) {
    const Variable x = layers::data("x", {2});
    Variable hidden = layers::fc(x, 2, {.bias_attr = {.omit = true}});
    if (is_sparse) {
      const Variable rows = layers::embedding(layers::data("ids", {1}, DType::kInt64), {6, 2},
                                              {.is_sparse = true, .param_attr = {.name = "table"}});
      hidden = layers::elementwise_add(layers::elementwise_mul(rows, x), hidden);
    }
    mixed_.emplace(momentum_, Options{.scaling = options});
    mixed_->minimize(layers::mean(hidden));
    exe_.run(startup_);
  }
  float step(bool finite) {
    const float value = finite ? 0.5f : std::numeric_limits<float>::infinity();
    Feed feed = {{"x", Tensor::from(std::vector<float>{value, 1.0f}, {1, 2})}};
    if (block().has_var("ids")) {
      feed.emplace_back("ids", Tensor::from(std::vector<int64_t>{3}, {1, 1}));
    }
    exe_.run(main_, feed);
    return exe_.scope().tensor(mixed_->loss_scaling().name()).item<float>();
  }
  std::vector<float> values(const std::string& name) {
    const auto all = exe_.scope().tensor(name).values<float>();
    return {all.begin(), all.end()};
  }

  optimizer::Momentum momentum_{{.learning_rate = 0.1, .momentum = 0.5}};
  std::optional<OptimizerWithMixedPrecision> mixed_;
  Executor exe_;
};

TEST_F(LossScalingTest, TheFactorFollowsTheGradients) {
  const LossScalingOptions options{.init_loss_scaling = 8,
                                   .incr_every_n_steps = 2,
                                   .decr_every_n_nan_or_inf = 1,
                                   .incr_ratio = 4,
                                   .decr_ratio = 0.25};
  build(options);
  Reference reference(options);
  // f: a finite step, n: one that is not.
  for (const char kind : std::string("fffffffnfnnfnnnnnnnnfffffff")) {
    EXPECT_EQ(step(kind == 'f'), reference.after(kind == 'f'));
  }
}

TEST_F(LossScalingTest, AFactorThatStaysStays) {
  build({.init_loss_scaling = 128, .use_dynamic_loss_scaling = false});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(true), 128);
  EXPECT_FALSE(block().has_var("num_good_steps_0"));
}

TEST_F(LossScalingTest, SkippedStepsLeaveParametersThatHaveNotMoved) {
  build({.decr_every_n_nan_or_inf = 3});
  const auto before = values("fc_0.w_0");
  for (int i = 0; i < 3; ++i) step(false);
  EXPECT_EQ(values("fc_0.w_0"), before);
  step(true);
  EXPECT_NE(values("fc_0.w_0"), before);
}

TEST_F(LossScalingTest, SkippedRowsAreZero) {
  build({}, true);
  const auto before = values("table");
  step(false);
  EXPECT_EQ(values("table"), before);
  step(true);
  EXPECT_NE(values("table"), before);
  for (const float value : values("table")) EXPECT_TRUE(std::isfinite(value));
}

// By a power of two nothing is rounded, so long as nothing is lost below.
TEST_F(LossScalingTest, RowsAreDividedAsOtherGradientsAre) {
  build({.init_loss_scaling = 2}, true);
  const auto before = values("table");
  step(true);
  const auto after = values("table");
  EXPECT_NEAR(before[6] - after[6], 0.1 * 0.5 * 0.5, 1e-6);
  EXPECT_NEAR(before[7] - after[7], 0.1 * 0.5, 1e-6);
}

TEST(LossScalingOptionsTest, WrongOnesAreNamed) {
  const auto expect = [](const LossScalingOptions& options, const char* field) {
    expect_error([&] { validate(options); }, ErrorCode::kInvalidArgument, {field});
  };
  expect({.init_loss_scaling = 0}, "init_loss_scaling");
  expect({.incr_every_n_steps = 0}, "incr_every_n_steps");
  expect({.decr_every_n_nan_or_inf = 0}, "decr_every_n_nan_or_inf");
  expect({.incr_ratio = 1}, "incr_ratio");
  expect({.decr_ratio = 1}, "decr_ratio");
}

}  // namespace
}  // namespace fleet::fluid::mixed_precision
