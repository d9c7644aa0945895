// The net that benchmarks hold ours against must take the step it claims to.
#include <cmath>
#include <gmock/gmock.h>

#include "benchmarks/handwritten/arithmetic.h"
#include "benchmarks/handwritten/mlp.h"

namespace fleet::benchmarks {
namespace {

struct Batch {
  std::vector<float> x;
  std::vector<int64_t> y;
};

Batch batch(int rows) {
  Batch batch;
  for (int i = 0; i < rows * HandwrittenMlp::kInputs; ++i) {
    batch.x.push_back(std::sin(static_cast<float>(i)));
  }
  for (int r = 0; r < rows; ++r) batch.y.push_back(r % HandwrittenMlp::kClasses);
  return batch;
}

// Parameters of every array, its first and its last among them.
TEST(HandwrittenMlp, GradientsAreTheSlopesOfTheLoss) {
  constexpr int kRows = 32;
  constexpr float kShift = 1e-2f;
  const Batch rows = batch(kRows);
  std::vector<float> parameters = HandwrittenMlp::initial_parameters();
  HandwrittenMlp net(kRows);
  net.forward_backward(parameters.data(), rows.x.data(), rows.y.data());
  const std::vector<float> gradients = net.gradients();
  const auto loss_with = [&](size_t at, float shift) {
    std::vector<float> moved = parameters;
    moved[at] += shift;
    return net.forward_backward(moved.data(), rows.x.data(), rows.y.data());
  };
  for (const size_t at :
       {0, 4095, 4096, 4223, 4224, 12000, 20607, 20608, 20735, 20736, 20737, 20991, 20992, 20993}) {
    const float slope = (loss_with(at, kShift) - loss_with(at, -kShift)) / (2 * kShift);
    EXPECT_NEAR(gradients[at], slope, 2e-4) << at;
  }
}

TEST(HandwrittenMlp, TrainingLowersTheLoss) {
  const Batch rows = batch(8);
  std::vector<float> parameters = HandwrittenMlp::initial_parameters();
  HandwrittenMlp net(8);
  const float first = net.forward_backward(parameters.data(), rows.x.data(), rows.y.data());
  float last = first;
  for (int i = 0; i < 200; ++i) {
    sgd_step(parameters.data(), net.gradients().data(), 0.1f, HandwrittenMlp::kParameters);
    last = net.forward_backward(parameters.data(), rows.x.data(), rows.y.data());
  }
  EXPECT_LT(last, first / 2);
}

}  // namespace
}  // namespace fleet::benchmarks
