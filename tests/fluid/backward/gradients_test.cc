// Gradients of several targets, recomputation, error clips: numbers, not only programs.
#include <algorithm>

#include "fluid/backward/backward.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/executor/executor.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

std::vector<float> values_of(const Tensor& tensor) {
  return {tensor.values<float>().begin(), tensor.values<float>().end()};
}

class GradientsTest : public NetFixture {
 protected:
  GradientsTest() : x_(layers::data("x", {2}, DType::kFloat32, {.stop_gradient = false})) {}
  Tensor run(const std::string& name, const Feed& more = {}) {
    Executor executor;
    executor.run(startup_);
    Feed feed = {{"x", Tensor::from<float>({1, -2, 3, 0.5}, Shape{2, 2})}};
    feed.insert(feed.end(), more.begin(), more.end());
    return executor.run(main_, feed, {name})[0];
  }
  Variable x_;
};

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::Pointwise;

TEST_F(GradientsTest, AddUpOverTargets) {
  const Variable a = layers::square(x_);
  const Variable b = layers::scale(x_, {.scale = 3.0});
  const auto grads = gradients({a, b}, {x_});
  ASSERT_TRUE(grads[0]);
  EXPECT_THAT(values_of(run(grads[0].name())), ElementsAre(5, -1, 9, 4));
}

TEST_F(GradientsTest, StartFromTheTargetGradientsGiven) {
  const Variable g = layers::data("g", {2});
  const auto grads = gradients({layers::square(x_)}, {x_}, {.target_gradients = {g}});
  const Tensor given = Tensor::from<float>({1, 10, 100, 1000}, Shape{2, 2});
  EXPECT_THAT(values_of(run(grads[0].name(), {{"g", given}})), ElementsAre(2, -40, 600, 1000));
}

TEST_F(GradientsTest, ReachInnerVariablesAndATargetThatAnotherUses) {
  const Variable h = layers::square(x_);
  const Variable o = layers::scale(h, {.scale = 2.0});
  const auto grads = gradients({h, o}, {h, x_});
  EXPECT_THAT(values_of(run(grads[0].name())), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(values_of(run(grads[1].name())), ElementsAre(6, -12, 18, 3));
}

TEST_F(GradientsTest, AreEmptyWhereNothingDepends) {
  const Variable other = layers::data("other", {2}, DType::kFloat32, {.stop_gradient = false});
  const Variable h = layers::square(x_);
  EXPECT_FALSE(gradients({h}, {other})[0]);
  EXPECT_FALSE(gradients({h}, {x_}, {.no_grad_set = {"x"}})[0]);
}

TEST_F(GradientsTest, RefuseWrongCountsAndShapes) {
  const Variable h = layers::square(x_);
  const Variable wide = layers::data("wide", {3});
  expect_error([&] { gradients({h}, {}); }, ErrorCode::kInvalidProgram, {"gradients"});
  expect_error(
      [&] {
        gradients({h}, {x_}, {.target_gradients = {h, h}});
      },
      ErrorCode::kInvalidProgram, {"2 for 1"});
  expect_error([&] { gradients({h}, {x_}, {.target_gradients = {wide}}); },
               ErrorCode::kInvalidProgram, {"shape"});
}

TEST_F(GradientsTest, AnErrorClipBoundsWhatFlowsOn) {
  const Variable h = layers::scale(x_, {.scale = 2.0});
  clip::set_error_clip(h, 0.5, -0.25);
  const Variable loss = layers::reduce_sum(layers::square(h));
  append_backward(loss);
  EXPECT_EQ(op_of("clip").role, OpRole::kBackward);
  // The gradient at h is 2 h = 4 x, clipped; at x twice that.
  EXPECT_THAT(values_of(run("x@GRAD")), ElementsAre(1, -0.5, 1, 1));
}

class RecomputeTest : public GradientsTest {
 protected:
  // Four layers; the gradients of all parameters after backward.
  std::map<std::string, std::vector<float>> gradients_with(std::vector<std::string> checkpoints) {
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable x = layers::data("x", {2});
    Variable h = x;
    for (int i = 0; i < 4; ++i) h = layers::tanh(layers::fc(h, 3));
    const Variable skip = layers::elementwise_add(h, layers::fc(x, 3));
    const auto pairs = append_backward(layers::mean(skip), {.checkpoints = std::move(checkpoints)});
    again_ = 0;
    for (const auto& op : main.global_block().ops()) {
      const auto outputs = op->output_names();
      again_ += std::count_if(outputs.begin(), outputs.end(), [](const std::string& name) {
        return name.find(".subprog_") != std::string::npos;
      });
    }
    Executor executor;
    executor.run(startup);
    std::vector<Fetch> fetch;
    for (const auto& pair : pairs) fetch.emplace_back(pair.grad.name());
    const Tensor fed = Tensor::from<float>({1, -2, 3, 0.5}, Shape{2, 2});
    const auto results = executor.run(main, {{"x", fed}}, fetch);
    std::map<std::string, std::vector<float>> gradients;
    for (size_t i = 0; i < pairs.size(); ++i) {
      gradients[pairs[i].param.name()] = values_of(results[i]);
    }
    return gradients;
  }
  long again_ = 0;
};

TEST_F(RecomputeTest, GivesTheSameBits) {
  const auto plain = gradients_with({});
  EXPECT_EQ(again_, 0);
  EXPECT_EQ(plain.size(), 10u);
  EXPECT_EQ(gradients_with({"tanh_1.tmp_0"}), plain);
  EXPECT_GT(again_, 0);
  EXPECT_EQ(gradients_with({"tanh_0.tmp_0", "tanh_2.tmp_0"}), plain);
  EXPECT_EQ(gradients_with({"tanh_3.tmp_0", "tanh_1.tmp_0", "elementwise_add_0.tmp_0"}), plain);
}

TEST_F(RecomputeTest, NeedsCheckpointsOnTheWay) {
  expect_error([&] { gradients_with({"x"}); }, ErrorCode::kInvalidProgram, {"checkpoint", "'x'"});
}

}  // namespace
}  // namespace fleet::fluid
