// Walks of the CPU (fluid/kernels/shape/mover.h).
#pragma once

#include <algorithm>
#include <cstdint>

#include "fluid/kernels/shape/mover.h"

namespace fleet::fluid::cpu {

template <class T>
void add_along(const StridedWalk& walk, const T* from, T* to) {
  walk.rows([=](int64_t f, int64_t t, int64_t n, int64_t from_step, int64_t to_step) {
    if (from_step == 1 && to_step == 1) {
      for (int64_t i = 0; i < n; ++i) to[t + i] += from[f + i];
    } else {
      for (int64_t i = 0; i < n; ++i) to[t + i * to_step] += from[f + i * from_step];
    }
  });
}

// Adds what comes from several places, in row-major order for each element of `to`. Tiles are parts
// of the longest of its dimensions.
template <class T>
void strided_add(const Tiles& tiles, const StridedWalk& walk, const T* from, T* to) {
  const auto dims = walk.dims();
  const auto longest = std::max_element(dims.begin(), dims.end(), [](const auto& a, const auto& b) {
    return (a.to == 0 ? 0 : a.size) < (b.to == 0 ? 0 : b.size);
  });
  if (!tiles.parallel() || walk.empty() || dims.empty() || longest->to == 0) {
    return add_along(walk, from, to);
  }
  constexpr int64_t kNarrow = 2048;  // the cost that makes 16 elements a tile
  const int64_t cost = walk.elements() / longest->size;
  const int64_t least = std::max<int64_t>(1, Tiles::items(kNarrow) / longest->to);
  const auto d = static_cast<size_t>(longest - dims.begin());
  tiles.ranges(longest->size, std::max(least, Tiles::items(cost)), [&](int64_t begin, int64_t end) {
    add_along(walk.with_size(d, end - begin), from + begin * longest->from,
              to + begin * longest->to);
  });
}

}  // namespace fleet::fluid::cpu
