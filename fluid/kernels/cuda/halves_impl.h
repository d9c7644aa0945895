// 16-bit floats in kernels: memory has them, arithmetic is of float32, and results are rounded
// once.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "fluid/core/dtype.h"
#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

template <class T>
concept Half = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;

// What elements of T are computed in.
template <class T>
using Computed = std::conditional_t<Half<T>, float, T>;

// As dtype_of, for halves too.
template <class T>
constexpr DType element_type() {
  if constexpr (std::is_same_v<T, __half>) {
    return DType::kFloat16;
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return DType::kBFloat16;
  } else {
    return dtype_of<T>();
  }
}

template <class T>
void set_to_zero(RawStream stream, T* out, int64_t n) {
  if constexpr (Half<T>) {
    fill<int16_t>(stream, 0, reinterpret_cast<int16_t*>(out), n);
  } else {
    fill<T>(stream, T{}, out, n);
  }
}

}  // namespace fleet::fluid::cuda
