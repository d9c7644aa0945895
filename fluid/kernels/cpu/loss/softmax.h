// Softmax along one axis; shared with the loss that contains it.
#pragma once

#include <cstdint>

#include "fluid/core/shape.h"

namespace fleet::fluid::cpu {

// A shape seen as [outer, n, inner] around one axis.
struct AxisView {
  AxisView(const Shape& shape, int axis);
  int64_t outer = 0;
  int64_t n = 0;
  int64_t inner = 0;
};

// out = exp(x - max) / sum, row by row; x and out may be the same. Simd: the vectorised exp
// (float only).
template <class T, bool Simd>
void softmax(const AxisView& view, const T* x, T* out);

}  // namespace fleet::fluid::cpu
