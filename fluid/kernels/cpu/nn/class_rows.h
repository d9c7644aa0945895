// Products of rows of X with chosen rows of a weight matrix, and their gradients: what losses over
// a few of many classes have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fluid/kernels/cpu/nn/lanes.h"
#include "fluid/kernels/kernel.h"
#include "fluid/kernels/nn/sampled.h"

namespace fleet::fluid::cpu {

template <class T>
T dot(const T* a, const T* b, int64_t width) {
  LaneSum<T> sum;
  sum.add(width, [a, b](int64_t i) { return a[i] * b[i]; });
  return sum.total();
}

template <class T>
void add_scaled(const T* from, T factor, T* to, int64_t width) {
  for (int64_t i = 0; i < width; ++i) to[i] += from[i] * factor;
}

// Adds up gradients of logits. Each logit is told in order: the row of X, the class, the gradient.
template <class T>
class ClassGradientSum {
 public:
  // `looked_at`: all classes that will be told, in any order; only read for sparse gradients.
  ClassGradientSum(const KernelContext& c, const ClassGradients& at, const T* x, const T* weight,
                   const std::vector<int64_t>& looked_at)
      : at_(at), x_(x), weight_(weight) {
    if (at.x >= 0) x_grad_ = zeros(c.output(at.x));
    if (at.bias >= 0) bias_grad_ = zeros(c.output(at.bias));
    if (at.weight < 0) return;
    if (!at.sparse) {
      weight_grad_ = zeros(c.output(at.weight));
      return;
    }
    numbers_ = looked_at;
    std::sort(numbers_.begin(), numbers_.end());
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
    const Shape shape{static_cast<int64_t>(numbers_.size()), at.width};
    SelectedRows& rows = c.make_rows(at.weight, dtype_of<T>(), shape);
    rows.height = at.classes;
    rows.rows = numbers_;
    weight_grad_ = zeros(rows.value);
  }

  void add(int64_t row, int64_t index, T grad) {
    if (x_grad_ != nullptr) {
      add_scaled(weight_ + index * at_.width, grad, x_grad_ + row * at_.width, at_.width);
    }
    if (bias_grad_ != nullptr) bias_grad_[index] += grad;
    if (weight_grad_ != nullptr) {
      add_scaled(x_ + row * at_.width, grad, weight_grad_ + slot(index) * at_.width, at_.width);
    }
  }

 private:
  static T* zeros(Tensor& tensor) {
    T* values = tensor.data<T>();
    std::fill_n(values, tensor.numel(), T{});
    return values;
  }
  int64_t slot(int64_t index) const {
    if (!at_.sparse) return index;
    return std::lower_bound(numbers_.begin(), numbers_.end(), index) - numbers_.begin();
  }

  ClassGradients at_;
  const T* x_;
  const T* weight_;
  T* x_grad_ = nullptr;
  T* weight_grad_ = nullptr;
  T* bias_grad_ = nullptr;
  std::vector<int64_t> numbers_;
};

}  // namespace fleet::fluid::cpu
