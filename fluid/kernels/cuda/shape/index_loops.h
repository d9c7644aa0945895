// Rows that are put to places, and what goes along one axis; conventions of
// fluid/kernels/cuda/loops.h.
#pragma once

#include "fluid/kernels/cuda/loops.h"
#include "fluid/kernels/cuda/shape/move_loops.h"

namespace fleet::fluid::cuda {

// last[row] = the last i with index[i] = row, -1 for rows that are not named: index.rows elements.
void last_of_rows(RawStream stream, const RowIndices& index, int32_t* last);
// to[index[i]] = from[i], the last of equal indices; rows of `width` elements.
template <class T>
void put_last_rows(RawStream stream, const RowIndices& index, int64_t width, const int32_t* last,
                   const T* from, T* to);
// Rows that are named become zeros.
template <class T>
void zero_named_rows(RawStream stream, const RowIndices& index, int64_t width, T* to);
// out[i] = x[index[i]], and 0 for all but the last of equal indices.
template <class T>
void take_last_rows(RawStream stream, const RowIndices& index, int64_t width, const int32_t* last,
                    const T* x, T* out);

// Rows of index.rows elements, of which the indexed one is 1. An index outside gives NaN (0 for
// whole numbers), or zeros with `allow_outside`.
template <class T>
void one_hot(RawStream stream, const RowIndices& index, bool allow_outside, T* out);

// Sums along the axis. T: float, double, int32, int64; so below.
struct CumsumArgs {
  Rows lines;
  bool exclusive = false;
  bool reverse = false;
};
template <class T>
void cumsum(RawStream stream, const CumsumArgs& args, const T* x, T* out);

// Where the first largest (smallest) element of each line is, as int64 or int32 (the other null).
template <class T>
void extreme_places(RawStream stream, const Rows& lines, bool largest, const T* x, int64_t* wide,
                    int32_t* narrow);

// Sorted lines, equal elements in their order, what is not a number last. Outputs may be null.
struct SortArgs {
  Rows lines;
  bool descending = false;
};
int64_t sort_scratch(const Rows& lines);  // elements of `order`
template <class T>
void sort_lines(RawStream stream, const SortArgs& args, const T* x, int64_t* order, T* out,
                int64_t* indices);
// out[indices[j]] = grad[j] in each line, 0 where no index leads; indices outside of the line are
// skipped.
template <class T>
void sort_lines_back(RawStream stream, const Rows& lines, const int64_t* indices, const T* grad,
                     T* out);

struct SmallShape {
  int rank = 0;
  int32_t sizes[kMaxDims] = {};
};
void write_shape(RawStream stream, const SmallShape& shape, int32_t* out);

}  // namespace fleet::fluid::cuda
