// One training step of the quick start's net, written by hand against oneDNN's sgemm: the
// arithmetic that the hand-written baselines share. One thread.
#pragma once

#include <cstdint>
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

  // One after the other: w0, b0, w1, b1, w2, b2.
  std::vector<float>& parameters() { return parameters_; }
  const std::vector<float>& gradients() const { return gradients_; }

  // Fills gradients() with the mean gradient over the rows and returns the mean loss. x: [rows,
  // kInputs], y: [rows].
  float forward_backward(const float* x, const int64_t* y);
  void sgd(float learning_rate);

 private:
  int rows_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<float> hidden0_;
  std::vector<float> hidden1_;
  std::vector<float> output_;
  std::vector<float> delta0_;
  std::vector<float> delta1_;
};

// p -= rate * g, n elements.
void sgd_step(float* p, const float* g, float rate, int n);

}  // namespace fleet::benchmarks
