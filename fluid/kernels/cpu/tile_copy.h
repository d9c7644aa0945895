// Copies and fills of whole arrays, in tiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/process/tile_pool.h"
#include "fluid/core/tensor.h"

namespace fleet::fluid::cpu {

// Calls range(begin, end) for parts of [0, n), of elements of `size` bytes. Those of large arrays
// are few and long: the C library copies and fills megabytes faster than many small parts.
template <class Range>
void each_long_range(const Tiles& tiles, int64_t n, int64_t size, const Range& range) {
  constexpr int64_t kMost = 32;
  constexpr int64_t kSimple = 4;  // bytes of an element of a simple loop
  if (n == 0) return;
  if (!tiles.parallel()) return range(int64_t{0}, n);
  const int64_t tile = std::max<int64_t>(1, kSimple * Tiles::items(1) / size);
  tiles.ranges(n, std::max(tile, n / kMost), range);
}

inline void copy_in_tiles(const Tiles& tiles, const void* from, void* to, size_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  each_long_range(tiles, static_cast<int64_t>(bytes), 1, [=](int64_t begin, int64_t end) {
    std::memcpy(target + begin, source + begin, static_cast<size_t>(end - begin));
  });
}

inline void zero_in_tiles(const Tiles& tiles, void* to, size_t bytes) {
  auto* target = static_cast<std::byte*>(to);
  each_long_range(tiles, static_cast<int64_t>(bytes), 1, [=](int64_t begin, int64_t end) {
    std::memset(target + begin, 0, static_cast<size_t>(end - begin));
  });
}

template <class T>
void fill_in_tiles(const Tiles& tiles, T* to, int64_t n, T value) {
  each_long_range(tiles, n, static_cast<int64_t>(sizeof(T)),
                  [=](int64_t begin, int64_t end) { std::fill(to + begin, to + end, value); });
}

// Tensor::copy_from; both may be the same memory.
inline void copy_elements(const Tiles& tiles, const Tensor& from, Tensor& to) {
  const bool on_host = from.place().is_cpu() && to.place().is_cpu();
  if (!on_host || from.dtype() != to.dtype() || from.numel() != to.numel()) {
    return to.copy_from(from);
  }
  if (to.raw() != from.raw()) copy_in_tiles(tiles, from.raw(), to.raw(), from.bytes());
}

// Tensor::clone.
inline Tensor clone_in_tiles(const Tiles& tiles, const Tensor& from) {
  if (!from.initialized()) return from.clone();
  Tensor copy(from.dtype(), from.shape(), from.place());
  copy.share_lod(from);
  copy_elements(tiles, from, copy);
  return copy;
}

}  // namespace fleet::fluid::cpu
