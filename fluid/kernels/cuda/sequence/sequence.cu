#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/sequence/sequence_loops.h"

namespace fleet::fluid::cuda {
namespace {

// An element of a pooled row: of its column, from top to bottom.
template <class T>
struct PoolLoop {
  SequencePool pool;
  SequenceRows rows;
  const T* x;
  T pad;
  T* out;
  int32_t* index;

  __device__ T sum(int64_t first, int64_t end, int64_t k) const {
    T total = x[first * rows.width + k];
    for (int64_t row = first + 1; row < end; ++row) total += x[row * rows.width + k];
    return total * pool_factor<T>(pool, end - first);
  }
  __device__ int64_t largest(int64_t first, int64_t end, int64_t k) const {
    int64_t at = first;
    for (int64_t row = first + 1; row < end; ++row) {
      if (x[row * rows.width + k] > x[at * rows.width + k]) at = row;
    }
    return at;
  }
  __device__ void operator()(int64_t i) const {
    const int64_t k = i % rows.width;
    const int64_t first = rows.offsets[i / rows.width];
    const int64_t end = rows.offsets[i / rows.width + 1];
    if (first == end) {
      out[i] = pad;
      if (index != nullptr) index[i] = -1;
    } else if (is_sum(pool)) {
      out[i] = sum(first, end, k);
    } else {
      int64_t row = pool == SequencePool::kFirst ? first : end - 1;
      if (pool == SequencePool::kMax) row = largest(first, end, k);
      out[i] = x[row * rows.width + k];
      if (index != nullptr) index[i] = static_cast<int32_t>(row);
    }
  }
};

template <class T>
struct PoolBackLoop {
  SequencePool pool;
  SequenceRows rows;
  const T* grad;
  const int32_t* index;
  T* x_grad;
  __device__ void operator()(int64_t i) const {
    const int64_t k = i % rows.width;
    const int64_t first = rows.offsets[i / rows.width];
    const int64_t end = rows.offsets[i / rows.width + 1];
    if (first == end) return;
    if (is_sum(pool)) {
      const T of_each = grad[i] * pool_factor<T>(pool, end - first);
      for (int64_t row = first; row < end; ++row) x_grad[row * rows.width + k] = of_each;
      return;
    }
    int64_t row = pool == SequencePool::kFirst ? first : end - 1;
    if (pool == SequencePool::kMax) row = index[i];
    x_grad[row * rows.width + k] = grad[i];
  }
};

// A block for each sequence.
template <class T>
struct SoftmaxLoop {
  SequenceRows rows;
  const T* x;
  T* out;
  __device__ void operator()(int64_t sequence) const {
    const int64_t first = rows.offsets[sequence];
    const int64_t end = rows.offsets[sequence + 1];
    if (first == end) return;
    T largest = x[first];
    for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
      if (x[i] > largest || x[i] != x[i]) largest = x[i];
    }
    largest = max_of_team<BlockTeam>(largest);
    T sum{};
    for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
      const T share = exp(x[i] - largest);
      out[i] = share;
      sum += share;
    }
    sum = sum_block(sum);
    for (int64_t i = first + threadIdx.x; i < end; i += kThreads) out[i] /= sum;
  }
};

template <class T>
struct SoftmaxBackLoop {
  SequenceRows rows;
  const T* out;
  const T* grad;
  T* x_grad;
  __device__ void operator()(int64_t sequence) const {
    const int64_t end = rows.offsets[sequence + 1];
    const int64_t own = rows.offsets[sequence] + threadIdx.x;
    T dot{};
    for (int64_t i = own; i < end; i += kThreads) dot += out[i] * grad[i];
    dot = sum_block(dot);
    for (int64_t i = own; i < end; i += kThreads) x_grad[i] = out[i] * (grad[i] - dot);
  }
};

}  // namespace

template <class T>
void pool_sequences(RawStream stream, SequencePool pool, const SequenceRows& rows, const T* x,
                    T pad, T* out, int32_t* index) {
  launch_each(stream, "sequence_pool", rows.count * rows.width,
              PoolLoop<T>{pool, rows, x, pad, out, index});
}
template <class T>
void pool_sequences_back(RawStream stream, SequencePool pool, const SequenceRows& rows,
                         const T* grad, const int32_t* index, T* x_grad) {
  launch_each(stream, "sequence_pool_grad", rows.count * rows.width,
              PoolBackLoop<T>{pool, rows, grad, index, x_grad});
}
template <class T>
void sequence_softmax(RawStream stream, const SequenceRows& rows, const T* x, T* out) {
  launch_each_row(stream, "sequence_softmax", rows.count, SoftmaxLoop<T>{rows, x, out});
}
template <class T>
void sequence_softmax_back(RawStream stream, const SequenceRows& rows, const T* out, const T* grad,
                           T* x_grad) {
  launch_each_row(stream, "sequence_softmax_grad", rows.count,
                  SoftmaxBackLoop<T>{rows, out, grad, x_grad});
}

#define FLEET_INSTANTIATE(T)                                                                  \
  template void pool_sequences(RawStream, SequencePool, const SequenceRows&, const T*, T, T*, \
                               int32_t*);                                                     \
  template void pool_sequences_back(RawStream, SequencePool, const SequenceRows&, const T*,   \
                                    const int32_t*, T*);                                      \
  template void sequence_softmax(RawStream, const SequenceRows&, const T*, T*);               \
  template void sequence_softmax_back(RawStream, const SequenceRows&, const T*, const T*, T*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
