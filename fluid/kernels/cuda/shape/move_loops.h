// Moving elements on the device; conventions of fluid/kernels/cuda/loops.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fluid/kernels/cuda/loops.h"
#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid::cuda {

// A walk over two strided views of one shape (fluid/kernels/shape/mover.h), outermost dimension
// first; steps are in elements.
struct WalkDims {
  static constexpr int kMost = 2 * kMaxDims;
  int rank = 0;
  int64_t size[kMost] = {};
  int64_t from[kMost] = {};
  int64_t to[kMost] = {};
  int64_t count = 1;  // elements in all
};
// Elements of 1, 2, 4, 8 or 16 bytes; both pointers are aligned to them.
void copy_walk(RawStream stream, const WalkDims& walk, size_t word, const std::byte* from,
               std::byte* to);

// Indices of rows, int64 or int32. Those outside of [0, rows) are no row: reading gives NaN (0 for
// whole numbers), writing does nothing.
struct RowIndices {
  const void* values = nullptr;
  bool wide = true;
  int64_t count = 0;
  int64_t rows = 0;
  int64_t skipped = -1;  // an index, from 0 on, that stands for zeros; -1: none

  // Whether an index stands for zeros.
  FLEET_HOST_DEVICE bool skips(int64_t index) const { return skipped >= 0 && index == skipped; }
};

// out[i] = x[index[i]], rows of `width` elements. T is any element type.
template <class T>
void take_rows(RawStream stream, const RowIndices& index, int64_t width, const T* x, T* out);
// to[index[i]] += from[i], equal indices in the order in which they occur: the same bits in every
// run. `sorted`: sort_bytes(index.count) bytes of scratch; may be null where that is 0.
template <class T>
void add_rows(RawStream stream, const RowIndices& index, int64_t width, const T* from, T* to,
              std::byte* sorted);
// Scratch of add_rows: few indices need none, many are sorted.
size_t sort_bytes(int64_t count);
template <class T>
void add_sorted_rows(RawStream stream, const RowIndices& index, int64_t width, const T* from, T* to,
                     std::byte* memory);

}  // namespace fleet::fluid::cuda
