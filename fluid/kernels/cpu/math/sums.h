// Sums in an order that lengths alone decide, and that vector registers like.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/process/tile_pool.h"
#include "fluid/kernels/cpu/tile_scratch.h"

namespace fleet::fluid::cpu {

// Sixteen interleaved partial sums, then a tree over them.
template <class T>
T sum_of(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  if (n <= 2) return n == 2 ? x[0] + x[1] : (n == 1 ? x[0] : T{});
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane];
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += x[i];
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// How many of `size` make n, the last one perhaps in part.
inline int64_t pieces_of(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

// Makes counts of parts the counts of all parts before; gives that of all.
inline int64_t to_offsets(int64_t* counts, int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exchange(counts[i], sum);
  return sum;
}

// What becomes one number: part(begin, end) of the parts of [0, n) that are tiles, and
// whole(parts, count) of those, where there is more than one. An item is as much work as `cost`
// elements of a simple loop. `part` does not use tile_scratch.
template <class T, class Part, class Whole>
T join_parts(const Tiles& tiles, int64_t n, int64_t cost, const Part& part, const Whole& whole) {
  const int64_t size = Tiles::part_size(n, cost);
  if (n <= size) return part(int64_t{0}, n);
  const int64_t count = pieces_of(n, size);
  T* parts = tile_scratch<T>(count);
  tiles.ranges(n, size,
               [&](int64_t begin, int64_t end) { parts[begin / size] = part(begin, end); });
  return whole(static_cast<const T*>(parts), count);
}

template <class T, class Part>
T sum_of_parts(const Tiles& tiles, int64_t n, int64_t cost, const Part& part) {
  return join_parts<T>(tiles, n, cost, part, sum_of<T>);
}

template <class T>
T sum_of(const Tiles& tiles, const T* x, int64_t n) {
  return sum_of_parts<T>(
      tiles, n, 1, [x](int64_t begin, int64_t end) { return sum_of(x + begin, end - begin); });
}

// What becomes a row: out[k] is `start` and, in the order of rows, what add(begin, end, first,
// last, to) adds to `to` for rows [begin, end) and columns [first, last), of which `to` is the
// first. Tiles are of strips of `width` columns and, where rows are many, of parts of the rows,
// which join(out, part, columns) then brings together. Costs and tile_scratch as above.
template <class T, class Add, class Join>
void join_strips(const Tiles& tiles, int64_t rows, int64_t columns, int64_t width, int64_t cost,
                 T start, T* out, const Add& add, const Join& join) {
  constexpr int64_t kLine = 16;       // so that no two parts lie in one cache line
  constexpr int64_t kMostParts = 64;  // each costs memory
  if (columns == 0) return;
  const int64_t strips = pieces_of(columns, width);
  const int64_t most = std::max<int64_t>(1, kMostParts / strips);
  const int64_t height =
      std::max(pieces_of(rows, most), Tiles::items(cost * std::min(width, columns)));
  const int64_t parts = std::max<int64_t>(1, pieces_of(rows, height));
  const int64_t stride = pieces_of(columns, kLine) * kLine;
  T* sums = parts == 1 ? out : tile_scratch<T>(parts * stride);
  tiles.run(parts * strips, [&](int64_t i) {
    const int64_t begin = i / strips * height;
    const int64_t first = i % strips * width;
    const int64_t last = std::min(columns, first + width);
    T* to = sums + i / strips * stride + first;
    std::fill(to, to + (last - first), start);
    add(begin, std::min(rows, begin + height), first, last, to);
  });
  if (parts == 1) return;
  tiles.split(columns, parts, [&](int64_t first, int64_t last) {
    std::copy(sums + first, sums + last, out + first);
    for (int64_t part = 1; part < parts; ++part) {
      join(out + first, static_cast<const T*>(sums + part * stride + first), last - first);
    }
  });
}

// The least that tiles take of a row when they share it: memory is read in long runs.
inline int64_t least_strip() {
  return std::max<int64_t>(16, Tiles::elements / 32);
}

template <class T, class Add, class Join>
void join_columns(const Tiles& tiles, int64_t rows, int64_t columns, int64_t cost, T start, T* out,
                  const Add& add, const Join& join) {
  constexpr int64_t kLine = 16;
  const int64_t least = std::max(least_strip(), Tiles::items(cost * rows));
  const int64_t strips = std::max<int64_t>(1, pieces_of(columns, least));
  const int64_t width = pieces_of(pieces_of(columns, strips), kLine) * kLine;
  join_strips(tiles, rows, columns, width, cost, start, out, add, join);
}

template <class T>
void add_row(T* sums, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sums[i] += x[i];
}

template <class T, class Add>
void sum_columns(const Tiles& tiles, int64_t rows, int64_t columns, int64_t cost, T* sums,
                 const Add& add) {
  join_columns(tiles, rows, columns, cost, T{}, sums, add, add_row<T>);
}

// The same of rows that tiles do not cut, with add(begin, end, to); `cost` is that of a row.
template <class T, class Add, class Join>
void join_rows(const Tiles& tiles, int64_t rows, int64_t columns, int64_t cost, T start, T* out,
               const Add& add, const Join& join) {
  join_strips(
      tiles, rows, columns, columns, pieces_of(cost, std::max<int64_t>(1, columns)), start, out,
      [&](int64_t begin, int64_t end, int64_t, int64_t, T* to) { add(begin, end, to); }, join);
}

}  // namespace fleet::fluid::cpu
