// Sums of squares in the one order that every op with a norm uses: row by row in float64, then the
// rows in order. A part of whole rows gives the same bits as the same rows of the whole.
#pragma once

#include <cstdint>

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

// Of a whole tensor [rows, …] with `length` elements a row.
template <class T>
double squared_sum(const T* x, int64_t rows, int64_t length) {
  double sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += squared_row_sum(x + row * length, length);
  return sum;
}

}  // namespace fleet::fluid::cpu
