// Softmax along one axis; shared with the loss that contains it.
#pragma once

#include <cstdint>

#include "fluid/kernels/shape/axis_view.h"

namespace fleet::fluid::cpu {

// Of an element, in elements of a simple loop.
inline constexpr int64_t kSoftmaxCost = 8;

// What losses take from a line: the largest element, and the sum of exp(x - largest).
template <class T>
struct SoftmaxLine {
  T largest;
  T sum;
};

// out = exp(x - largest) / sum for lines [begin, end), which split_lines gave; x and out may be the
// same. `lines`: of each of them, unless null. Simd: the vectorised exp (float only).
template <class T, bool Simd>
void softmax(const AxisView& view, int64_t begin, int64_t end, const T* x, T* out,
             SoftmaxLine<T>* lines);

}  // namespace fleet::fluid::cpu
