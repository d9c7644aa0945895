// Sums of squares in the one order that every op with a norm uses: of each row, then of the rows,
// in float64 and sixteen lanes. A part of whole rows gives the same bits as the same rows of the
// whole, and so do rows of zeros that are left out.
#pragma once

#include <cstdint>

#include "base/process/tile_pool.h"
#include "fluid/kernels/cpu/math/lanes.h"
#include "fluid/kernels/cpu/tile_scratch.h"

namespace fleet::fluid::cpu {

// Of elements that lie side by side, from one that is first of sixteen.
template <class T>
void add_squares(LaneSum<double>& sum, const T* x, int64_t n) {
  sum.add_fours(n, [x](int64_t i) {
    const LaneSum<double>::Four of = {x[i], x[i + 1], x[i + 2], x[i + 3]};
    return of * of;
  });
  const int64_t done = n - n % LaneSum<double>::kLanes;
  sum.add(n - done, [x = x + done](int64_t i) { return static_cast<double>(x[i]) * x[i]; });
}

template <class T>
double squared_row_sum(const T* row, int64_t length) {
  if (length < LaneSum<double>::kLanes) {
    double sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += static_cast<double>(row[i]) * row[i];
    return sum;
  }
  LaneSum<double> sum;
  add_squares(sum, row, length);
  return sum.total();
}

inline double sum_rows(const double* rows, int64_t count) {
  LaneSum<double> sum;
  sum.add(count, [rows](int64_t i) { return rows[i]; });
  return sum.total();
}

// each(row, its sum) for rows of `length` elements, in tiles.
template <class T, class Each>
void each_squared_row_sum(const Tiles& tiles, const T* x, int64_t rows, int64_t length,
                          const Each& each) {
  tiles.split(rows, length, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      each(row, squared_row_sum(x + row * length, length));
  });
}

// Of a tensor [rows, …] with `length` elements a row, whose row i is row numbers[i] of the whole;
// null: row i.
template <class T>
double squared_sum(const Tiles& tiles, const T* x, int64_t rows, int64_t length,
                   const int64_t* numbers = nullptr) {
  const auto number = [numbers](int64_t row) { return numbers == nullptr ? row : numbers[row]; };
  LaneSum<double> sum;
  if (length == 1 && numbers == nullptr) {
    add_squares(sum, x, rows);
  } else if (!tiles.parallel() || length < 4) {
    for (int64_t row = 0; row < rows; ++row) {
      sum.add_at(number(row), squared_row_sum(x + row * length, length));
    }
  } else {
    auto* sums = tile_scratch<double>(rows);
    each_squared_row_sum(tiles, x, rows, length, [=](int64_t row, double of) { sums[row] = of; });
    for (int64_t row = 0; row < rows; ++row) sum.add_at(number(row), sums[row]);
  }
  return sum.total();
}

}  // namespace fleet::fluid::cpu
