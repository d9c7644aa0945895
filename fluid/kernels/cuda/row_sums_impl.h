// Sums over rows of equal number, for .cu files.
#pragma once

#include "fluid/kernels/cuda/launch_impl.h"

namespace fleet::fluid::cuda {

// Element k of a group's sum: its values in their order.
template <class T>
__device__ T sum_of_group(const RowValues<T>& from, int64_t group, int64_t k) {
  const RowGroupArrays& groups = from.groups;
  if (groups.begin == nullptr) return from.values[group * from.width + k];
  const int64_t end = groups.begin[group + 1];
  int64_t i = groups.begin[group];
  T sum = from.values[groups.order[i] * from.width + k];
  for (++i; i < end; ++i) sum += from.values[groups.order[i] * from.width + k];
  return sum;
}

}  // namespace fleet::fluid::cuda
