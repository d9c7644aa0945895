// Sums of two contributions of one slice, as bytes of its element type.
#pragma once

#include <cstddef>

#include "base/shard_tree.h"
#include "fluid/core/dtype.h"

namespace fleet::strategies {

// out = left + right; `out` may be one of them. float32, float64 or int64.
inline void sum_pair(fluid::DType dtype, const std::byte* left, const std::byte* right,
                     std::byte* out, size_t bytes) {
  const auto add = [&]<class T>(T) {
    const T* both[] = {reinterpret_cast<const T*>(left), reinterpret_cast<const T*>(right)};
    tree_sum<T>(both, reinterpret_cast<T*>(out), bytes / sizeof(T));
  };
  switch (dtype) {
    case fluid::DType::kFloat64:
      return add(double{});
    case fluid::DType::kInt64:
      return add(int64_t{});
    default:
      return add(float{});
  }
}

}  // namespace fleet::strategies
