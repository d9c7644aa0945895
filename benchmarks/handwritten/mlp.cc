#include "benchmarks/handwritten/mlp.h"

#include <cmath>
#include <dnnl.h>
#include <omp.h>

#include "base/philox.h"

namespace fleet::benchmarks {
namespace {

constexpr int kI = HandwrittenMlp::kInputs;
constexpr int kH = HandwrittenMlp::kHidden;
constexpr int kC = HandwrittenMlp::kClasses;

constexpr int kW0 = 0;
constexpr int kB0 = kW0 + kI * kH;
constexpr int kW1 = kB0 + kH;
constexpr int kB1 = kW1 + kH * kH;
constexpr int kW2 = kB1 + kH;
constexpr int kB2 = kW2 + kH * kC;

// tanh by a rational approximation of degree 13 over 6 on [-7.9, 7.9], the coefficients that
// Eigen publishes; it vectorises.
inline float tanh_fast(float x) {
  const float c = std::fmin(std::fmax(x, -7.90531110763549805f), 7.90531110763549805f);
  const float s = c * c;
  float p = -2.76076847742355e-16f;
  p = p * s + 2.00018790482477e-13f;
  p = p * s + -8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  float q = 1.19825839466702e-06f;
  q = q * s + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return c * p / q;
}

void gemm(char ta, char tb, int m, int n, int k, const float* a, int lda, const float* b, int ldb,
          float* c) {
  dnnl_sgemm(ta, tb, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, n);
}

void add_bias_tanh(float* values, const float* bias, int rows) {
  for (int r = 0; r < rows; ++r) {
    float* row = values + r * kH;
    for (int i = 0; i < kH; ++i) row[i] = tanh_fast(row[i] + bias[i]);
  }
}

void column_sums(const float* values, float* sums, int rows, int columns) {
  for (int i = 0; i < columns; ++i) sums[i] = 0;
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < columns; ++i) sums[i] += values[r * columns + i];
  }
}

void times_tanh_slope(float* delta, const float* activation, int n) {
  for (int i = 0; i < n; ++i) delta[i] *= 1.0f - activation[i] * activation[i];
}

}  // namespace

HandwrittenMlp::HandwrittenMlp(int rows)
    : rows_(rows),
      parameters_(kParameters),
      gradients_(kParameters),
      hidden0_(static_cast<size_t>(rows * kH)),
      hidden1_(static_cast<size_t>(rows * kH)),
      output_(static_cast<size_t>(rows * kC)),
      delta0_(static_cast<size_t>(rows * kH)),
      delta1_(static_cast<size_t>(rows * kH)) {
  omp_set_num_threads(1);
  const auto key = RandomKey::of(1, "handwritten");
  for (size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i] = (uniform_float(key, i) - 0.5f) * 0.3f;
  }
}

float HandwrittenMlp::forward_backward(const float* x, const int64_t* y) {
  const float* p = parameters_.data();
  float* g = gradients_.data();
  gemm('N', 'N', rows_, kH, kI, x, kI, p + kW0, kH, hidden0_.data());
  add_bias_tanh(hidden0_.data(), p + kB0, rows_);
  gemm('N', 'N', rows_, kH, kH, hidden0_.data(), kH, p + kW1, kH, hidden1_.data());
  add_bias_tanh(hidden1_.data(), p + kB1, rows_);
  gemm('N', 'N', rows_, kC, kH, hidden1_.data(), kH, p + kW2, kC, output_.data());

  float loss = 0;
  const float scale = 1.0f / static_cast<float>(rows_);
  for (int r = 0; r < rows_; ++r) {
    float* row = output_.data() + r * kC;
    for (int i = 0; i < kC; ++i) row[i] += p[kB2 + i];
    const float top = std::fmax(row[0], row[1]);
    const float e0 = std::exp(row[0] - top);
    const float e1 = std::exp(row[1] - top);
    const float probability[kC] = {e0 / (e0 + e1), e1 / (e0 + e1)};
    loss -= std::log(probability[y[r]]);
    for (int i = 0; i < kC; ++i) {
      row[i] = (probability[i] - (y[r] == i ? 1.0f : 0.0f)) * scale;
    }
  }

  gemm('T', 'N', kH, kC, rows_, hidden1_.data(), kH, output_.data(), kC, g + kW2);
  column_sums(output_.data(), g + kB2, rows_, kC);
  gemm('N', 'T', rows_, kH, kC, output_.data(), kC, p + kW2, kC, delta1_.data());
  times_tanh_slope(delta1_.data(), hidden1_.data(), rows_ * kH);
  gemm('T', 'N', kH, kH, rows_, hidden0_.data(), kH, delta1_.data(), kH, g + kW1);
  column_sums(delta1_.data(), g + kB1, rows_, kH);
  gemm('N', 'T', rows_, kH, kH, delta1_.data(), kH, p + kW1, kH, delta0_.data());
  times_tanh_slope(delta0_.data(), hidden0_.data(), rows_ * kH);
  gemm('T', 'N', kI, kH, rows_, x, kI, delta0_.data(), kH, g + kW0);
  column_sums(delta0_.data(), g + kB0, rows_, kH);
  return loss * scale;
}

void HandwrittenMlp::sgd(float learning_rate) {
  sgd_step(parameters_.data(), gradients_.data(), learning_rate, kParameters);
}

void sgd_step(float* p, const float* g, float rate, int n) {
  for (int i = 0; i < n; ++i) p[i] -= rate * g[i];
}

}  // namespace fleet::benchmarks
