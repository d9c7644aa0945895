#include "fluid/kernels/cpu/sequence/rnn_steps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/strings.h"

namespace fleet::fluid::cpu {

void RnnSteps::reset(const Offsets& offsets, bool reverse) {
  if (offsets == offsets_ && reverse == reverse_) return;
  offsets_ = offsets;
  reverse_ = reverse;
  const auto length = [&](int64_t i) {
    return offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)];
  };
  order_.resize(offsets.size() - 1);
  std::iota(order_.begin(), order_.end(), int64_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](int64_t a, int64_t b) { return length(a) > length(b); });
  starts_ = {0};
  sources_.clear();
  for (int64_t t = 0;; ++t) {
    for (const int64_t i : order_) {
      if (length(i) <= t) break;
      const int64_t first = offsets[static_cast<size_t>(i)];
      sources_.push_back(reverse ? first + length(i) - 1 - t : first + t);
    }
    const auto rows = static_cast<int64_t>(sources_.size());
    if (rows == starts_.back()) break;
    starts_.push_back(rows);
  }
}

namespace {

void multiply(const GemmArgs<float>& args) {
  isa_loops().gemm_f32(args);
}
void multiply(const GemmArgs<double>& args) {
  isa_loops().gemm_f64(args);
}

}  // namespace

template <class T>
void StepGemm<T>::pack(const T* b, const Tiles& tiles) {
  const int64_t width = isa_loops().panel_columns<T>();
  panels_.resize(static_cast<size_t>(n_ * k_));
  tiles.split((n_ + width - 1) / width, width * k_, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin * width; j < std::min(end * width, n_); j += width) {
      const int64_t columns = std::min(width, n_ - j);
      T* to = panels_.data() + j * k_;
      if (transpose_b_) {
        transpose(b + j * k_, columns, k_, to);
        continue;
      }
      for (int64_t p = 0; p < k_; ++p, to += columns) std::copy_n(b + p * n_ + j, columns, to);
    }
  });
}

template <class T>
void StepGemm<T>::run(int64_t m, const T* a, T* c, const Tiles& tiles) const {
  const int64_t width = isa_loops().panel_columns<T>();
  const int64_t cost = m * k_ * width / kProducts;
  tiles.split((n_ + width - 1) / width, cost, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin * width; j < std::min(end * width, n_); j += width) {
      const int64_t columns = std::min(width, n_ - j);
      multiply(GemmArgs<T>{.m = m,
                           .n = columns,
                           .k = k_,
                           .a = a,
                           .lda = k_,
                           .b = panels_.data() + j * k_,
                           .ldb = columns,
                           .c = c + j,
                           .ldc = n_});
    }
  });
}

template class StepGemm<float>;
template class StepGemm<double>;

RnnActivation rnn_activation(const PrepareContext& context, const std::string& name) {
  if (name == "sigmoid") return RnnActivation::kSigmoid;
  if (name == "tanh") return RnnActivation::kTanh;
  if (name == "relu") return RnnActivation::kRelu;
  context.require(name == "identity", "Input", "activation sigmoid, tanh, relu or identity", name);
  return RnnActivation::kIdentity;
}

void activate(RnnActivation kind, float* x, int64_t n) {
  const auto count = static_cast<size_t>(n);
  if (kind == RnnActivation::kSigmoid) isa_loops().sigmoid(x, x, count);
  if (kind == RnnActivation::kTanh) isa_loops().tanh(x, x, count);
  if (kind != RnnActivation::kRelu) return;
  for (int64_t i = 0; i < n; ++i) x[i] = std::max(x[i], 0.0f);
}

void activate(RnnActivation kind, double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (kind == RnnActivation::kSigmoid) x[i] = 1.0 / (1.0 + std::exp(-x[i]));
    if (kind == RnnActivation::kTanh) x[i] = std::tanh(x[i]);
    if (kind == RnnActivation::kRelu) x[i] = std::max(x[i], 0.0);
  }
}

}  // namespace fleet::fluid::cpu
