// Lines along an axis, in tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/process/tile_pool.h"
#include "fluid/kernels/shape/axis_view.h"

namespace fleet::fluid::cpu {

// Lines that are walked together where their elements lie side by side, at most.
inline constexpr int64_t kLinesAbreast = 64;

// f(first, line, width) for lines [begin, end), `width` at a time: element j of line line + i is
// element first + j * view.inner + i.
template <class F>
void each_abreast(const AxisView& view, int64_t begin, int64_t end, const F& f) {
  for (int64_t line = begin; line < end;) {
    const int64_t width = std::min({end - line, view.inner - line % view.inner, kLinesAbreast});
    f(view.start(line), line, width);
    line += width;
  }
}

// f(begin, end) for lines in tiles: they are all the lines of some outer indices, or kLinesAbreast
// of one. An element is as much work as `cost` of a simple loop.
template <class F>
void split_lines(const AxisView& view, const Tiles& tiles, int64_t cost, const F& f) {
  const int64_t n = view.n;
  const int64_t inner = view.inner;
  if (inner <= kLinesAbreast) {
    return tiles.split(view.outer, cost * n * inner,
                       [&](int64_t begin, int64_t end) { f(begin * inner, end * inner); });
  }
  const int64_t pieces = (inner + kLinesAbreast - 1) / kLinesAbreast;
  tiles.split(view.outer * pieces, cost * n * kLinesAbreast, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t outer = i / pieces * inner;
      const int64_t first = i % pieces * kLinesAbreast;
      f(outer + first, outer + std::min(inner, first + kLinesAbreast));
    }
  });
}

}  // namespace fleet::fluid::cpu
