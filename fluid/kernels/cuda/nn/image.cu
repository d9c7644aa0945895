// Pooling, dropout and metrics.
#include <cmath>

#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/nn/nn_loops.h"
#include "fluid/kernels/cuda/random_impl.h"

namespace fleet::fluid::cuda {
namespace {

// An element of images as [planes, rows, columns, lanes].
struct ImagePlace {
  int64_t lane;
  int64_t column;
  int64_t row;
  int64_t plane;
};
template <class Int>
__device__ ImagePlace image_place_by(Int i, Int rows, Int columns, Int lanes) {
  ImagePlace p;
  p.lane = i % lanes;
  i /= lanes;
  p.column = i % columns;
  i /= columns;
  p.row = i % rows;
  p.plane = i / rows;
  return p;
}
// Divisions of 32 bits cost a fraction of those of 64.
__device__ inline ImagePlace image_place(int64_t i, int64_t rows, int64_t columns, int64_t lanes) {
  if (i <= UINT32_MAX) {
    return image_place_by(static_cast<uint32_t>(i), static_cast<uint32_t>(rows),
                          static_cast<uint32_t>(columns), static_cast<uint32_t>(lanes));
  }
  return image_place_by(i, rows, columns, lanes);
}

template <class T>
struct Windows {
  PoolDims dims;
  bool max;
  const T* x;
  __device__ PoolSpan rows(int64_t o) const {
    return pool_span(dims.rows, dims.adaptive, dims.exclusive, o);
  }
  __device__ PoolSpan columns(int64_t o) const {
    return pool_span(dims.columns, dims.adaptive, dims.exclusive, o);
  }
  __device__ int64_t at(int64_t plane, int64_t row, int64_t column, int64_t lane) const {
    return ((plane * dims.rows.in + row) * dims.columns.in + column) * dims.lanes + lane;
  }
};

template <class T>
struct PoolLoop {
  Windows<T> w;
  T* out;
  __device__ void operator()(int64_t i) const {
    const ImagePlace o = image_place(i, w.dims.rows.out, w.dims.columns.out, w.dims.lanes);
    const PoolSpan rows = w.rows(o.row);
    const PoolSpan columns = w.columns(o.column);
    T result = w.max ? w.x[w.at(o.plane, rows.begin, columns.begin, o.lane)] : T{};
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      for (int64_t x = columns.begin; x < columns.end; ++x) {
        const T value = w.x[w.at(o.plane, y, x, o.lane)];
        if (!w.max) {
          result += value;
        } else if (value > result || value != value) {
          result = value;
        }
      }
    }
    out[i] = w.max ? result : result / static_cast<T>(rows.divisor * columns.divisor);
  }
};

// The windows that may cover position i of a dimension: [first, last].
struct Covering {
  int64_t first;
  int64_t last;
};
__device__ inline Covering covering(const WindowAxis& axis, bool adaptive, int64_t i) {
  if (adaptive) {
    const int64_t last = ((i + 1) * axis.out + axis.in - 1) / axis.in - 1;
    return {i * axis.out / axis.in, last < axis.out ? last : axis.out - 1};
  }
  const int64_t padded = i + axis.pad_before;
  const int64_t first = padded < axis.kernel ? 0 : (padded - axis.kernel) / axis.stride + 1;
  const int64_t last = padded / axis.stride;
  return {first, last < axis.out ? last : axis.out - 1};
}

template <class T>
struct PoolBackLoop {
  Windows<T> w;
  const T* out;
  const T* grad;
  T* x_grad;

  // Whether the element is the first of its window that is the largest.
  __device__ bool leads(const ImagePlace& p, const PoolSpan& rows, const PoolSpan& columns,
                        T largest) const {
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      for (int64_t x = columns.begin; x < columns.end; ++x) {
        if (w.x[w.at(p.plane, y, x, p.lane)] == largest) return y == p.row && x == p.column;
      }
    }
    return false;
  }
  __device__ void operator()(int64_t i) const {
    const PoolDims& d = w.dims;
    const ImagePlace p = image_place(i, d.rows.in, d.columns.in, d.lanes);
    const Covering ys = covering(d.rows, d.adaptive, p.row);
    const Covering xs = covering(d.columns, d.adaptive, p.column);
    T sum{};
    for (int64_t y = ys.first; y <= ys.last; ++y) {
      const PoolSpan rows = w.rows(y);
      if (p.row < rows.begin || p.row >= rows.end) continue;
      for (int64_t x = xs.first; x <= xs.last; ++x) {
        const PoolSpan columns = w.columns(x);
        if (p.column < columns.begin || p.column >= columns.end) continue;
        const int64_t o = ((p.plane * d.rows.out + y) * d.columns.out + x) * d.lanes + p.lane;
        if (!w.max) {
          sum += grad[o] / static_cast<T>(rows.divisor * columns.divisor);
        } else if (w.x[i] == out[o] && leads(p, rows, columns, out[o])) {
          sum += grad[o];
        }
      }
    }
    x_grad[i] = sum;
  }
};

// Four elements share a block of random words.
template <class T>
struct DropoutLoop {
  DropoutArgs args;
  T factor;
  const T* x;
  uint8_t* mask;
  T* out;
  int64_t n;
  __device__ void operator()(int64_t block) const {
    const uint64_t step = args.step_memory != nullptr ? *args.step_memory : args.step;
    const PhiloxBlock words =
        philox_block(args.key, static_cast<uint64_t>(block), (step + 1) << 16 | args.shard);
    for (int k = 0; k < 4; ++k) {
      const int64_t i = 4 * block + k;
      if (i >= n) return;
      const bool keeps = words.x[k] >= args.threshold;
      if (mask != nullptr) mask[i] = keeps ? 1 : 0;
      out[i] = keeps ? x[i] * factor : T{};
    }
  }
};

template <class T>
struct KeepLoop {
  const uint8_t* mask;
  T factor;
  const T* x;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = mask[i] != 0 ? x[i] * factor : T{}; }
};

// Whether element a comes before element b.
template <class T>
__device__ bool leads(const T* x, int64_t a, int64_t b) {
  const bool a_nan = x[a] != x[a];
  const bool b_nan = x[b] != x[b];
  if (a_nan != b_nan) return b_nan;
  return a_nan || x[a] == x[b] ? a < b : x[a] > x[b];
}

template <class T>
struct TopKLoop {
  int64_t n;
  int64_t k;
  const T* x;
  T* out;
  int64_t* indices;
  __device__ void operator()(int64_t row) const {
    const T* xs = x + row * n;
    const auto first = [xs](int64_t a, int64_t b) {
      if (a < 0) return b;
      return b < 0 || leads(xs, a, b) ? a : b;
    };
    int64_t before = -1;
    for (int64_t j = 0; j < k; ++j) {
      int64_t best = -1;
      for (int64_t i = threadIdx.x; i < n; i += kThreads) {
        if (before < 0 || leads(xs, before, i)) best = first(best, i);
      }
      before = combine_block(best, first);
      if (threadIdx.x != 0) continue;
      if (out != nullptr) out[row * k + j] = xs[before];
      if (indices != nullptr) indices[row * k + j] = before;
    }
  }
};

template <class T>
struct TopKBackLoop {
  int64_t n;
  int64_t k;
  const int64_t* indices;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t row) const {
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      T value{};
      for (int64_t j = 0; j < k; ++j) {
        if (indices[row * k + j] == i) value = grad[row * k + j];
      }
      out[row * n + i] = value;
    }
  }
};

struct AccuracyLoop {
  int64_t rows;
  int64_t k;
  const int64_t* indices;
  const int64_t* labels;
  float* share;
  int32_t* correct;
  int32_t* total;
  __device__ void operator()(int64_t) const {
    int32_t right = 0;
    for (int64_t i = threadIdx.x; i < rows; i += kThreads) {
      bool found = false;
      for (int64_t j = 0; j < k; ++j) found = found || indices[i * k + j] == labels[i];
      right += found ? 1 : 0;
    }
    right = sum_block(right);
    if (threadIdx.x != 0) return;
    const float all = static_cast<float>(rows);
    if (share != nullptr) *share = rows == 0 ? 0.0F : static_cast<float>(right) / all;
    if (correct != nullptr) *correct = right;
    if (total != nullptr) *total = static_cast<int32_t>(rows);
  }
};

}  // namespace

template <class T>
void pool(RawStream stream, const PoolDims& dims, bool max, const T* x, T* out) {
  const int64_t n = dims.planes * dims.rows.out * dims.columns.out * dims.lanes;
  launch_each(stream, "pool", n, PoolLoop<T>{{dims, max, x}, out});
}

template <class T>
void pool_back(RawStream stream, const PoolDims& dims, bool max, const T* x, const T* out,
               const T* grad, T* x_grad) {
  const int64_t n = dims.planes * dims.rows.in * dims.columns.in * dims.lanes;
  launch_each(stream, "pool_back", n, PoolBackLoop<T>{{dims, max, x}, out, grad, x_grad});
}

template <class T>
void dropout(RawStream stream, const DropoutArgs& args, T factor, const T* x, uint8_t* mask, T* out,
             int64_t n) {
  launch_each(stream, "dropout", (n + 3) / 4, DropoutLoop<T>{args, factor, x, mask, out, n});
}

template <class T>
void keep_masked(RawStream stream, const uint8_t* mask, T factor, const T* x, T* out, int64_t n) {
  launch_each(stream, "keep_masked", n, KeepLoop<T>{mask, factor, x, out});
}

template <class T>
void top_k(RawStream stream, int64_t rows, int64_t n, int64_t k, const T* x, T* out,
           int64_t* indices) {
  launch_each_row(stream, "top_k", rows, TopKLoop<T>{n, k, x, out, indices});
}

template <class T>
void top_k_back(RawStream stream, int64_t rows, int64_t n, int64_t k, const int64_t* indices,
                const T* grad, T* out) {
  launch_each_row(stream, "top_k_back", rows, TopKBackLoop<T>{n, k, indices, grad, out});
}

void accuracy(RawStream stream, int64_t rows, int64_t k, const int64_t* indices,
              const int64_t* labels, float* share, int32_t* correct, int32_t* total) {
  launch_each_row(stream, "accuracy", 1,
                  AccuracyLoop{rows, k, indices, labels, share, correct, total});
}

#define FLEET_INSTANTIATE(T)                                                                   \
  template void pool(RawStream, const PoolDims&, bool, const T*, T*);                          \
  template void pool_back(RawStream, const PoolDims&, bool, const T*, const T*, const T*, T*); \
  template void dropout(RawStream, const DropoutArgs&, T, const T*, uint8_t*, T*, int64_t);    \
  template void keep_masked(RawStream, const uint8_t*, T, const T*, T*, int64_t);              \
  template void top_k_back(RawStream, int64_t, int64_t, int64_t, const int64_t*, const T*, T*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE
#define FLEET_TOP_K(T) \
  template void top_k(RawStream, int64_t, int64_t, int64_t, const T*, T*, int64_t*)
FLEET_TOP_K(int32_t);
FLEET_TOP_K(int64_t);
FLEET_TOP_K(float);
FLEET_TOP_K(double);
#undef FLEET_TOP_K

}  // namespace fleet::fluid::cuda
