// How large tiles of kernels are (KernelContext::parallel_tiles): work for some ten microseconds,
// so that handing them over costs little, and one of them is as fast as the whole.
#pragma once

#include <algorithm>
#include <cstdint>

namespace fleet::fluid::cpu {

// Of loops over elements.
inline constexpr int64_t kTileElements = 32768;
// Of products: multiply-adds.
inline constexpr int64_t kTileProducts = int64_t{1} << 19;

// Rows of so many elements.
inline int64_t rows_of_tile(int64_t elements) {
  return std::max<int64_t>(1, kTileElements / std::max<int64_t>(1, elements));
}

}  // namespace fleet::fluid::cpu
