// Sums of rows into rows that may be named several times, in tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/process/tile_pool.h"

namespace fleet::fluid::cpu {

// Calls columns(begin, end) for parts of [0, width): each does its columns of all `count` rows, so
// that sums keep their order. Parts of rows are read more slowly than whole ones: narrow rows stay
// in one part.
template <class Columns>
void split_columns(const Tiles& tiles, int64_t count, int64_t width, const Columns& columns) {
  constexpr int64_t kNarrow = 512;  // the cost that makes 64 columns a tile
  constexpr int64_t kMost = 16;     // parts
  if (!tiles.parallel()) return columns(int64_t{0}, width);
  const int64_t least = std::max(Tiles::items(kNarrow), (width + kMost - 1) / kMost);
  tiles.ranges(width, std::max(least, Tiles::items(count)), columns);
}

}  // namespace fleet::fluid::cpu
