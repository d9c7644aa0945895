#include <cstdint>

#include "fluid/kernels/cuda/divisor_impl.h"
#include "fluid/kernels/cuda/shape/row_indices_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class Word>
struct WalkLoop {
  Places<2, WalkDims::kMost> places;
  const Word* from;
  Word* to;
  __device__ void operator()(int64_t i) const {
    const auto at = places.at(i);
    to[at.of[1]] = from[at.of[0]];
  }
};

template <class Word>
void copy_words(RawStream stream, const WalkDims& walk, const std::byte* from, std::byte* to) {
  launch_each(stream, "copy", walk.count,
              WalkLoop<Word>{{walk.rank, walk.size, {walk.from, walk.to}},
                             reinterpret_cast<const Word*>(from),
                             reinterpret_cast<Word*>(to)});
}

template <class T>
struct TakeLoop {
  RowIndices index;
  int64_t width;
  WideDivisor row_width;  // width
  const T* x;
  T* out;
  __device__ T element(int64_t i) const {
    int64_t which = i;
    const int64_t k = row_width.split(which);
    const int64_t row = index_at(index, which);
    if (is_row(index, row)) return x[row * width + k];
    return index.skips(row) ? T{} : no_element<T>();
  }
};

// The block of an index's first occurrence adds up all of them.
template <class T>
struct AddLoop {
  RowIndices index;
  int64_t width;
  const T* from;
  T* to;
  __device__ void operator()(int64_t first) const {
    const int64_t row = index_at(index, first);
    int before = is_row(index, row) ? 0 : 1;
    for (int64_t i = threadIdx.x; i < first && before == 0; i += kThreads) {
      if (index_at(index, i) == row) before = 1;
    }
    if (__syncthreads_or(before) != 0) return;
    __shared__ bool same[kThreads];
    for (int64_t tile = first; tile < index.count; tile += kThreads) {
      const int64_t own = tile + threadIdx.x;
      same[threadIdx.x] = own < index.count && index_at(index, own) == row;
      if (__syncthreads_or(same[threadIdx.x] ? 1 : 0) == 0) continue;
      for (int64_t k = threadIdx.x; k < width; k += kThreads) {
        T sum = to[row * width + k];
        for (int i = 0; i < kThreads; ++i) {
          if (same[i]) sum += from[(tile + i) * width + k];
        }
        to[row * width + k] = sum;
      }
      __syncthreads();
    }
  }
};

}  // namespace

void copy_walk(RawStream stream, const WalkDims& walk, size_t word, const std::byte* from,
               std::byte* to) {
  switch (word) {
    case 1:
      return copy_words<uint8_t>(stream, walk, from, to);
    case 2:
      return copy_words<uint16_t>(stream, walk, from, to);
    case 4:
      return copy_words<uint32_t>(stream, walk, from, to);
    case 8:
      return copy_words<uint64_t>(stream, walk, from, to);
    default:
      return copy_words<uint4>(stream, walk, from, to);
  }
}

template <class T>
void take_rows(RawStream stream, const RowIndices& index, int64_t width, const T* x, T* out) {
  const int64_t n = index.count * width;
  launch_each(stream, "take_rows", n, TakeLoop<T>{index, width, WideDivisor(width, n), x, out});
}

template <class T>
void add_rows(RawStream stream, const RowIndices& index, int64_t width, const T* from, T* to,
              std::byte* sorted) {
  if (sorted != nullptr) return add_sorted_rows(stream, index, width, from, to, sorted);
  launch_each_row(stream, "add_rows", index.count, AddLoop<T>{index, width, from, to});
}

#define FLEET_TAKE(T) template void take_rows(RawStream, const RowIndices&, int64_t, const T*, T*)
FLEET_TAKE(bool);
FLEET_TAKE(uint8_t);
FLEET_TAKE(int8_t);
FLEET_TAKE(int16_t);
FLEET_TAKE(int32_t);
FLEET_TAKE(int64_t);
FLEET_TAKE(float);
FLEET_TAKE(double);
#undef FLEET_TAKE
template void add_rows(RawStream, const RowIndices&, int64_t, const float*, float*, std::byte*);
template void add_rows(RawStream, const RowIndices&, int64_t, const double*, double*, std::byte*);

}  // namespace fleet::fluid::cuda
