// Where the windows of pool2d lie, for every device.
#pragma once

#include <cstdint>

#include "fluid/core/shape.h"
#include "fluid/kernels/functions/host_device.h"
#include "fluid/ops/nn/window.h"

namespace fleet::fluid {

class PrepareContext;
struct Pool2dAttrs;

// The part of the image that one window covers, in one dimension, and the divisor of an average.
struct PoolSpan {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t divisor = 1;
};

FLEET_HOST_DEVICE inline PoolSpan pool_span(const WindowAxis& axis, bool adaptive, bool exclusive,
                                            int64_t o) {
  PoolSpan span;
  if (adaptive) {
    span.begin = o * axis.in / axis.out;
    span.end = ((o + 1) * axis.in + axis.out - 1) / axis.out;
    span.divisor = span.end - span.begin;
    return span;
  }
  const int64_t first = o * axis.stride - axis.pad_before;
  span.begin = first > 0 ? first : 0;
  span.end = first + axis.kernel < axis.in ? first + axis.kernel : axis.in;
  span.divisor = exclusive ? span.end - span.begin : axis.kernel;
  return span;
}

// Images as planes of rows of elements, `lanes` channels side by side in each.
struct PoolWindows {
  Window window;
  bool adaptive = false;
  bool exclusive = true;
  int64_t planes = 0;
  int64_t lanes = 1;
  Shape out;

  PoolSpan span(size_t dimension, int64_t o) const {
    return pool_span(window[dimension], adaptive, exclusive, o);
  }
};
// Throws ProgramError where X does not fit, or a window covers nothing of it.
PoolWindows pool_windows(const PrepareContext& context, const Pool2dAttrs& attrs);

}  // namespace fleet::fluid
