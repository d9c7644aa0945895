// Tensors of 16-bit floats and of float32.
#pragma once

#include "base/process/tile_pool.h"
#include "fluid/core/tensor.h"

namespace fleet::fluid {

inline bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// The elements of one as the other's: one has a 16-bit type and one is float32, of one shape, on
// one place. Rounded to nearest, ties to even. `stream`: of that place (KernelContext::stream);
// `tiles`: of the host.
void convert_half(const Tensor& from, Tensor& to, void* stream, const Tiles& tiles = {});

}  // namespace fleet::fluid
