// Sums of squares in the one order that every op with a norm uses: row by row in float64, then the
// rows in order. A part of whole rows gives the same bits as the same rows of the whole.
#pragma once

#include <cstdint>

#include "base/process/tile_pool.h"
#include "fluid/kernels/cpu/tile_scratch.h"

namespace fleet::fluid::cpu {

template <class T>
double squared_row_sum(const T* row, int64_t length) {
  double sum = 0;
  for (int64_t i = 0; i < length; ++i) sum += static_cast<double>(row[i]) * row[i];
  return sum;
}

inline double sum_rows(const double* rows, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += rows[i];
  return sum;
}

// each(row, its sum) for rows of `length` elements, in tiles. An addition waits for the one before.
template <class T, class Each>
void each_squared_row_sum(const Tiles& tiles, const T* x, int64_t rows, int64_t length,
                          const Each& each) {
  tiles.split(rows, 4 * length, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      each(row, squared_row_sum(x + row * length, length));
  });
}

// Of a whole tensor [rows, …] with `length` elements a row.
template <class T>
double squared_sum(const Tiles& tiles, const T* x, int64_t rows, int64_t length) {
  if (!tiles.parallel() || length < 4) {
    double sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += squared_row_sum(x + row * length, length);
    return sum;
  }
  auto* sums = tile_scratch<double>(rows);
  each_squared_row_sum(tiles, x, rows, length, [=](int64_t row, double sum) { sums[row] = sum; });
  return sum_rows(sums, rows);
}

}  // namespace fleet::fluid::cpu
