// Products of rows of X with chosen rows of a weight matrix, and their gradients: what losses over
// a few of many classes have in common.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fluid/kernels/cpu/column_tiles.h"
#include "fluid/kernels/cpu/math/lanes.h"
#include "fluid/kernels/cpu/tile_copy.h"
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

// Gradients of logits, as many places for each row of X: place p of row r is r * per_row + p.
template <class T>
struct LogitGradients {
  LogitGradients(int64_t height, int64_t places)
      : rows(height), per_row(places), classes(count()), values(count()) {}

  size_t count() const { return static_cast<size_t>(rows * per_row); }
  void set(int64_t place, int64_t index, T value) {
    classes[static_cast<size_t>(place)] = index;
    values[static_cast<size_t>(place)] = value;
  }

  int64_t rows;
  int64_t per_row;
  std::vector<int64_t> classes;  // -1: none
  std::vector<T> values;
};

// Adds up what gradients of logits mean for X, weights and biases, place by place.
template <class T>
class ClassGradientSum {
 public:
  void run(const KernelContext& c, const ClassGradients& at, const T* x, const T* weight,
           const LogitGradients<T>& logits) {
    if (at.x >= 0) add_to_x(c, at, weight, logits);
    if (at.bias < 0 && at.weight < 0) return;
    T* const bias_grad = at.bias < 0 ? nullptr : zeros(c, c.output(at.bias));
    T* const weight_grad = at.weight < 0 ? nullptr : zeros(c, weight_gradient(c, at, logits));
    if (bias_grad != nullptr) add_to_bias(logits, bias_grad);
    if (weight_grad == nullptr) return;
    const auto count = static_cast<int64_t>(logits.count());
    const int64_t* const at_row = places(c, at.sparse, logits);
    split_columns(c.tiles(), count, at.width, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i) {
        if (at_row[i] < 0) continue;
        const T* from = x + i / logits.per_row * at.width;
        T* to = weight_grad + at_row[i] * at.width;
        add_scaled(from + begin, logits.values[static_cast<size_t>(i)], to + begin, end - begin);
      }
    });
  }

 private:
  static T* zeros(const KernelContext& c, Tensor& tensor) {
    T* values = tensor.data<T>();
    fill_in_tiles(c.tiles(), values, tensor.numel(), T{});
    return values;
  }

  void add_to_x(const KernelContext& c, const ClassGradients& at, const T* weight,
                const LogitGradients<T>& logits) const {
    T* const x_grad = zeros(c, c.output(at.x));
    c.tiles().split(logits.rows, logits.per_row * at.width, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * logits.per_row; i < end * logits.per_row; ++i) {
        const int64_t index = logits.classes[static_cast<size_t>(i)];
        if (index < 0) continue;
        add_scaled(weight + index * at.width, logits.values[static_cast<size_t>(i)],
                   x_grad + i / logits.per_row * at.width, at.width);
      }
    });
  }

  static void add_to_bias(const LogitGradients<T>& logits, T* bias_grad) {
    for (size_t i = 0; i < logits.count(); ++i) {
      if (logits.classes[i] >= 0) bias_grad[logits.classes[i]] += logits.values[i];
    }
  }

  // Of sparse gradients, the rows are the classes that there are.
  Tensor& weight_gradient(const KernelContext& c, const ClassGradients& at,
                          const LogitGradients<T>& logits) {
    if (!at.sparse) return c.output(at.weight);
    numbers_ = logits.classes;
    std::erase(numbers_, -1);
    std::sort(numbers_.begin(), numbers_.end());
    numbers_.erase(std::unique(numbers_.begin(), numbers_.end()), numbers_.end());
    const Shape shape{static_cast<int64_t>(numbers_.size()), at.width};
    SelectedRows& rows = c.make_rows(at.weight, dtype_of<T>(), shape);
    rows.height = at.classes;
    rows.rows = numbers_;
    return rows.value;
  }

  // Where each logit's class is among the rows of the weight's gradient.
  const int64_t* places(const KernelContext& c, bool sparse, const LogitGradients<T>& logits) {
    if (!sparse) return logits.classes.data();
    constexpr int64_t kSearchCost = 50;
    places_.resize(logits.count());
    const auto count = static_cast<int64_t>(logits.count());
    c.tiles().split(count, kSearchCost, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        const int64_t index = logits.classes[i];
        const auto found = std::lower_bound(numbers_.begin(), numbers_.end(), index);
        places_[i] = index < 0 ? -1 : found - numbers_.begin();
      }
    });
    return places_.data();
  }

  std::vector<int64_t> numbers_;
  std::vector<int64_t> places_;
};

}  // namespace fleet::fluid::cpu
