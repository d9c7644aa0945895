#include "benchmarks/handwritten/mlp.h"

#include <array>
#include <cmath>

#include "base/philox.h"
#include "benchmarks/handwritten/arithmetic.h"
#include "fluid/kernels/cpu/math/gemm.h"

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
// Eigen publishes. The bounds are comparisons: std::fmin and std::fmax are calls, which would keep
// the loops around it scalar.
__attribute__((always_inline)) inline float tanh_fast(float x) {
  constexpr float kBound = 7.90531110763549805f;
  float c = x > kBound ? kBound : x;
  c = c < -kBound ? -kBound : c;
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

FLEET_WIDEST void add_bias_tanh(float* __restrict values, const float* __restrict bias, int rows) {
  for (int r = 0; r < rows; ++r) {
    float* row = values + r * kH;
    for (int i = 0; i < kH; ++i) row[i] = tanh_fast(row[i] + bias[i]);
  }
}

// delta *= the slope of tanh, and the sums of its columns.
FLEET_WIDEST void times_tanh_slope(float* __restrict delta, const float* __restrict activation,
                                   float* __restrict sums, int rows) {
  for (int i = 0; i < kH; ++i) sums[i] = 0;
  for (int r = 0; r < rows; ++r) {
    float* row = delta + r * kH;
    const float* active = activation + r * kH;
    for (int i = 0; i < kH; ++i) {
      row[i] *= 1.0f - active[i] * active[i];
      sums[i] += row[i];
    }
  }
}

// The two columns of a [kH, kC] matrix.
struct Columns {
  alignas(64) std::array<float, kH> first;
  alignas(64) std::array<float, kH> second;

  static Columns of(const float* matrix) {
    Columns columns;
    for (size_t i = 0; i < kH; ++i) {
      columns.first[i] = matrix[i * kC];
      columns.second[i] = matrix[i * kC + 1];
    }
    return columns;
  }
};
static_assert(kC == 2);

}  // namespace

struct HandwrittenMlp::Products {
  explicit Products(int rows)
      : first({.m = rows, .n = kH, .k = kI}),
        second({.m = rows, .n = kH, .k = kH}),
        second_gradient({.m = kH, .n = kH, .k = rows, .transpose_a = true}),
        delta({.m = rows, .n = kH, .k = kH, .transpose_b = true}),
        first_gradient({.m = kI, .n = kH, .k = rows, .transpose_a = true}) {}

  struct Product {
    explicit Product(const fluid::GemmShape& shape) : gemm(fluid::cpu::tile_gemm<float>(shape)) {}
    std::unique_ptr<fluid::cpu::Gemm<float>> gemm;
  };
  void run(const Product& product, const float* a, const float* b, float* c) {
    product.gemm->run(a, b, c, scratch, Tiles());
  }

  Product first;
  Product second;
  Product second_gradient;
  Product delta;
  Product first_gradient;
  fluid::Scratch scratch;
};

HandwrittenMlp::~HandwrittenMlp() = default;
HandwrittenMlp::HandwrittenMlp(HandwrittenMlp&&) noexcept = default;

HandwrittenMlp::HandwrittenMlp(int rows)
    : rows_(rows),
      products_(std::make_unique<Products>(rows)),
      gradients_(kParameters),
      hidden0_(static_cast<size_t>(rows * kH)),
      hidden1_(static_cast<size_t>(rows * kH)),
      output_(static_cast<size_t>(rows * kC)),
      delta0_(static_cast<size_t>(rows * kH)),
      delta1_(static_cast<size_t>(rows * kH)) {}

std::vector<float> HandwrittenMlp::initial_parameters() {
  std::vector<float> parameters(kParameters);
  const auto key = RandomKey::of(1, "handwritten");
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = (uniform_float(key, i) - 0.5f) * 0.3f;
  }
  return parameters;
}

void HandwrittenMlp::output_layer(const float* weights) {
  const Columns columns = Columns::of(weights);
  for (int r = 0; r < rows_; ++r) {
    const float* row = hidden1_.data() + r * kH;
    float first = 0;
    float second = 0;
#pragma omp simd reduction(+ : first, second)
    for (int i = 0; i < kH; ++i) {
      const auto at = static_cast<size_t>(i);
      first += row[i] * columns.first[at];
      second += row[i] * columns.second[at];
    }
    output_[static_cast<size_t>(r) * kC] = first;
    output_[static_cast<size_t>(r) * kC + 1] = second;
  }
}

float HandwrittenMlp::loss_and_slope(const float* bias, const int64_t* y) {
  float loss = 0;
  const float scale = 1.0f / static_cast<float>(rows_);
  for (int r = 0; r < rows_; ++r) {
    float* row = output_.data() + r * kC;
    const float a = row[0] + bias[0];
    const float b = row[1] + bias[1];
    const float top = a > b ? a : b;
    const float e0 = std::exp(a - top);
    const float e1 = std::exp(b - top);
    const float probability[kC] = {e0 / (e0 + e1), e1 / (e0 + e1)};
    loss -= std::log(probability[y[r]]);
    for (int i = 0; i < kC; ++i) {
      row[i] = (probability[i] - (y[r] == i ? 1.0f : 0.0f)) * scale;
    }
  }
  return loss * scale;
}

void HandwrittenMlp::output_gradient(const float* weights, float* weight_gradient) {
  const Columns columns = Columns::of(weights);
  Columns sums = {};
  float bias[kC] = {0, 0};
  for (int r = 0; r < rows_; ++r) {
    const float first = output_[static_cast<size_t>(r) * kC];
    const float second = output_[static_cast<size_t>(r) * kC + 1];
    bias[0] += first;
    bias[1] += second;
    const float* active = hidden1_.data() + r * kH;
    float* delta = delta1_.data() + r * kH;
    for (size_t i = 0; i < kH; ++i) {
      sums.first[i] += active[i] * first;
      sums.second[i] += active[i] * second;
      delta[i] = first * columns.first[i] + second * columns.second[i];
    }
  }
  for (size_t i = 0; i < kH; ++i) {
    weight_gradient[i * kC] = sums.first[i];
    weight_gradient[i * kC + 1] = sums.second[i];
  }
  weight_gradient[kH * kC] = bias[0];
  weight_gradient[kH * kC + 1] = bias[1];
}

float HandwrittenMlp::forward_backward(const float* p, const float* x, const int64_t* y) {
  float* g = target_ == nullptr ? gradients_.data() : target_;
  Products& make = *products_;
  make.run(make.first, x, p + kW0, hidden0_.data());
  add_bias_tanh(hidden0_.data(), p + kB0, rows_);
  make.run(make.second, hidden0_.data(), p + kW1, hidden1_.data());
  add_bias_tanh(hidden1_.data(), p + kB1, rows_);
  output_layer(p + kW2);
  const float loss = loss_and_slope(p + kB2, y);

  output_gradient(p + kW2, g + kW2);
  times_tanh_slope(delta1_.data(), hidden1_.data(), g + kB1, rows_);
  make.run(make.second_gradient, hidden0_.data(), delta1_.data(), g + kW1);
  make.run(make.delta, delta1_.data(), p + kW1, delta0_.data());
  times_tanh_slope(delta0_.data(), hidden0_.data(), g + kB0, rows_);
  make.run(make.first_gradient, x, delta0_.data(), g + kW0);
  return loss;
}

}  // namespace fleet::benchmarks
