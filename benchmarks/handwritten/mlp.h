// One training step of the quick start's net, written by hand around the engine's own matrix
// products, which are faster at these sizes than oneDNN's sgemm: the arithmetic that the
// hand-written baselines share. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace fleet::benchmarks {

// x[32] -> 128 tanh -> 128 tanh -> 2, softmax cross entropy, float32.
class HandwrittenMlp {
 public:
  static constexpr int kInputs = 32;
  static constexpr int kHidden = 128;
  static constexpr int kClasses = 2;
  static constexpr int kParameters =
      kInputs * kHidden + kHidden + kHidden * kHidden + kHidden + kHidden * kClasses + kClasses;

  explicit HandwrittenMlp(int rows);
  ~HandwrittenMlp();
  HandwrittenMlp(HandwrittenMlp&&) noexcept;

  // The initial values, one after the other: w0, b0, w1, b1, w2, b2.
  static std::vector<float> initial_parameters();

  // kParameters floats, gradients in the same order.
  const std::vector<float>& gradients() const { return gradients_; }

  // Further steps write their gradients there, kParameters floats, and not into gradients().
  void write_gradients_to(float* memory) { target_ = memory; }

  // Fills gradients() with the mean gradient over the rows and returns the mean loss. x: [rows,
  // kInputs], y: [rows], parameters: [kParameters].
  float forward_backward(const float* parameters, const float* x, const int64_t* y);

 private:
  float loss_and_slope(const float* bias, const int64_t* y);
  void output_layer(const float* weights);
  void output_gradient(const float* weights, float* weight_gradient);

  struct Products;

  int rows_;
  std::unique_ptr<Products> products_;
  std::vector<float> gradients_;
  float* target_ = nullptr;
  std::vector<float> hidden0_;
  std::vector<float> hidden1_;
  std::vector<float> output_;  // and its slope, after loss_and_slope
  std::vector<float> delta0_;
  std::vector<float> delta1_;
};

}  // namespace fleet::benchmarks
