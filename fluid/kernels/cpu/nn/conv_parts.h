// How convolutions are cut into tiles.
#pragma once

#include <cstdint>

#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/nn/conv_problem.h"

namespace fleet::fluid::cpu {

// Columns that one product of the filter's gradient should sum over: its numbers are written and
// added to others afterwards.
inline constexpr int64_t kLongSum = 512;

// Nothing is multiplied.
inline bool is_empty(const ConvShape& shape) {
  const int64_t windows = shape.batch * shape.window[0].out * shape.window[1].out;
  return windows * shape.in * shape.out == 0;
}

}  // namespace fleet::fluid::cpu
