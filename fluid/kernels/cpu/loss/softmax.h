// Softmax along one axis; shared with the loss that contains it.
#pragma once

#include <cstdint>

#include "base/process/tile_pool.h"
#include "fluid/kernels/shape/axis_view.h"

namespace fleet::fluid::cpu {

// out = exp(x - max) / sum, row by row; x and out may be the same. Simd: the vectorised exp
// (float only).
template <class T, bool Simd>
void softmax(const AxisView& view, const T* x, T* out, const Tiles& tiles);

}  // namespace fleet::fluid::cpu
