// Indices of rows, for .cu files.
#pragma once

#include <cmath>
#include <type_traits>

#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/shape/move_loops.h"

namespace fleet::fluid::cuda {

__device__ inline int64_t index_at(const RowIndices& index, int64_t i) {
  return index.wide ? static_cast<const int64_t*>(index.values)[i]
                    : static_cast<const int32_t*>(index.values)[i];
}
__device__ inline bool is_row(const RowIndices& index, int64_t row) {
  return row >= 0 && row < index.rows && !index.skips(row);
}

// What an index that is no row gives.
template <class T>
__device__ T no_element() {
  return std::is_floating_point_v<T> ? static_cast<T>(NAN) : T{};
}

}  // namespace fleet::fluid::cuda
