// Sums whose parts come one after the other: gradients of iterations, elements of tensor arrays.
#pragma once

#include "base/process/tile_pool.h"
#include "fluid/core/tensor.h"

namespace fleet::fluid {

// to += from, element by element; a tensor without memory is zero, and `to` then becomes a copy of
// `from`. float32 and float64 on the CPU. Throws kShapeMismatch when dtypes or numbers of elements
// differ.
void accumulate(const Tensor& from, Tensor& to, const Tiles& tiles = {});

}  // namespace fleet::fluid
