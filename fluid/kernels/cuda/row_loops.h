// Values of selected rows on the device; conventions of fluid/kernels/cuda/loops.h. Row numbers and
// which of them are equal come from the host (fluid/kernels/row_groups.h).
#pragma once

#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

// out = the sum of each group, one after the other.
template <class T>
void merge_rows(RawStream stream, const RowValues<T>& from, T* out);

// to[row] += each value of the row, as they occur.
template <class T>
void add_groups(RawStream stream, const RowValues<T>& from, T* to);

// Rows of `width` elements at `count` positions become zeros.
template <class T>
void zero_rows(RawStream stream, const int64_t* positions, int64_t count, int64_t width, T* rows);

// to[positions[i]] = from[i], rows of `width` elements. T: float, double, int32, int64.
template <class T>
void put_rows(RawStream stream, const int64_t* positions, int64_t count, int64_t width,
              const T* from, T* to);

// place[row] = the row's group, or -1: for each of `height` rows.
void number_groups(RawStream stream, const RowGroupArrays& groups, int64_t height, int32_t* place);

}  // namespace fleet::fluid::cuda
