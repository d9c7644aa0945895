// Adding many rows: their indices are sorted by CUB, which keeps the order of equal ones.
#include <cub/device/device_radix_sort.cuh>

#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/shape/row_indices_impl.h"

namespace fleet::fluid::cuda {
namespace {

constexpr int64_t kFewRows = 4096;  // as many are searched for equal ones faster than sorted

// The parts of the scratch: indices and positions, unsorted and sorted, and CUB's own.
struct Sorting {
  int64_t* keys;
  int64_t* sorted_keys;
  int32_t* positions;
  int32_t* sorted_positions;
  void* own;
  size_t own_bytes;
};

size_t own_bytes(int64_t count) {
  size_t bytes = 0;
  check_cuda(cub::DeviceRadixSort::SortPairs(nullptr, bytes, static_cast<const int64_t*>(nullptr),
                                             static_cast<int64_t*>(nullptr),
                                             static_cast<const int32_t*>(nullptr),
                                             static_cast<int32_t*>(nullptr), count),
             "cub::DeviceRadixSort::SortPairs");
  return bytes;
}

Sorting sorting_in(std::byte* memory, int64_t count) {
  Sorting parts{};
  parts.keys = reinterpret_cast<int64_t*>(memory);
  parts.sorted_keys = parts.keys + count;
  parts.positions = reinterpret_cast<int32_t*>(parts.sorted_keys + count);
  parts.sorted_positions = parts.positions + count;
  const size_t used = static_cast<size_t>(count) * 2 * (sizeof(int64_t) + sizeof(int32_t));
  parts.own = memory + (used + 255) / 256 * 256;
  parts.own_bytes = own_bytes(count);
  return parts;
}

// Indices that are no rows go to the end.
struct NumberLoop {
  RowIndices index;
  Sorting sorting;
  __device__ void operator()(int64_t i) const {
    const int64_t row = index_at(index, i);
    sorting.keys[i] = is_row(index, row) ? row : index.rows;
    sorting.positions[i] = static_cast<int32_t>(i);
  }
};

template <class T>
struct AddRunLoop {
  Sorting sorting;
  int64_t count;
  int64_t rows;
  int64_t width;
  const T* from;
  T* to;
  __device__ void operator()(int64_t first) const {
    const int64_t row = sorting.sorted_keys[first];
    if (row == rows || (first > 0 && sorting.sorted_keys[first - 1] == row)) return;
    for (int64_t k = threadIdx.x; k < width; k += kThreads) {
      T sum = to[row * width + k];
      for (int64_t i = first; i < count && sorting.sorted_keys[i] == row; ++i) {
        sum += from[sorting.sorted_positions[i] * width + k];
      }
      to[row * width + k] = sum;
    }
  }
};

}  // namespace

size_t sort_bytes(int64_t count) {
  if (count <= kFewRows || count > INT32_MAX) return 0;
  const size_t used = static_cast<size_t>(count) * 2 * (sizeof(int64_t) + sizeof(int32_t));
  return (used + 255) / 256 * 256 + own_bytes(count);
}

template <class T>
void add_sorted_rows(RawStream stream, const RowIndices& index, int64_t width, const T* from, T* to,
                     std::byte* memory) {
  Sorting sorting = sorting_in(memory, index.count);
  launch_each(stream, "number_rows", index.count, NumberLoop{index, sorting});
  check_cuda(cub::DeviceRadixSort::SortPairs(
                 sorting.own, sorting.own_bytes, sorting.keys, sorting.sorted_keys,
                 sorting.positions, sorting.sorted_positions, index.count, 0,
                 static_cast<int>(sizeof(int64_t) * 8), static_cast<cudaStream_t>(stream)),
             "cub::DeviceRadixSort::SortPairs");
  launch_each_row(stream, "add_rows", index.count,
                  AddRunLoop<T>{sorting, index.count, index.rows, width, from, to});
}

template void add_sorted_rows(RawStream, const RowIndices&, int64_t, const float*, float*,
                              std::byte*);
template void add_sorted_rows(RawStream, const RowIndices&, int64_t, const double*, double*,
                              std::byte*);

}  // namespace fleet::fluid::cuda
