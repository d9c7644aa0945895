// A shape seen as [outer, n, inner] around one axis.
#pragma once

#include <cstdint>

#include "fluid/core/shape.h"

namespace fleet::fluid {

struct AxisView {
  AxisView(const Shape& shape, int axis) {
    if (axis < 0) axis += shape.rank();
    outer = shape.numel(0, axis);
    n = shape[axis];
    inner = shape.numel(axis + 1, shape.rank());
  }

  // How many lines there are along the axis, and the element at which one begins.
  int64_t lines() const { return outer * inner; }
  int64_t start(int64_t line) const { return line / inner * n * inner + line % inner; }

  int64_t outer = 0;
  int64_t n = 0;
  int64_t inner = 0;
};

}  // namespace fleet::fluid
