// Pooling, dropout and metrics.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "fluid/kernels/cuda/divisor_impl.h"
#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/nn/nn_loops_impl.h"
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
class ImagePlaces {
 public:
  ImagePlaces(int64_t planes, int64_t rows, int64_t columns, int64_t lanes) {
    const int64_t count = planes * rows * columns * lanes;
    rows_ = WideDivisor(rows, count);
    columns_ = WideDivisor(columns, count);
    lanes_ = WideDivisor(lanes, count);
  }
  __device__ ImagePlace at(int64_t i) const {
    ImagePlace p;
    p.lane = lanes_.split(i);
    p.column = columns_.split(i);
    p.row = rows_.split(i);
    p.plane = i;
    return p;
  }

 private:
  WideDivisor rows_;
  WideDivisor columns_;
  WideDivisor lanes_;
};

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
  ImagePlaces places;
  T* out;
  __device__ void operator()(int64_t i) const {
    const ImagePlace o = places.at(i);
    const PoolSpan rows = w.rows(o.row);
    const PoolSpan columns = w.columns(o.column);
    using C = Computed<T>;
    C result = w.max ? static_cast<C>(w.x[w.at(o.plane, rows.begin, columns.begin, o.lane)]) : C{};
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      for (int64_t x = columns.begin; x < columns.end; ++x) {
        const C value = static_cast<C>(w.x[w.at(o.plane, y, x, o.lane)]);
        if (!w.max) {
          result += value;
        } else if (value > result || value != value) {
          result = value;
        }
      }
    }
    out[i] = T(w.max ? result : result / static_cast<C>(rows.divisor * columns.divisor));
  }
};

// The windows that may cover position i of a dimension: [first, last].
template <class Int>
struct Covering {
  Int first;
  Int last;
};
// Of an axis, in the integers that a kernel counts in: divisions of 32 bits cost a fraction of
// those of 64.
template <class Int>
struct Axis {
  Int in;
  Int out;
  Int kernel;
  Int stride;
  Int pad;
  bool adaptive;
  bool exclusive;
  WideDivisor by_stride;

  Axis(const WindowAxis& axis, const PoolDims& dims)
      : in(static_cast<Int>(axis.in)),
        out(static_cast<Int>(axis.out)),
        kernel(static_cast<Int>(axis.kernel)),
        stride(static_cast<Int>(axis.stride)),
        pad(static_cast<Int>(axis.pad_before)),
        adaptive(dims.adaptive),
        exclusive(dims.exclusive),
        by_stride(axis.stride, axis.in + axis.pad_before + 1) {}

  __device__ Int begin(Int o) const {
    if (adaptive) return o * in / out;
    const Int first = o * stride - pad;
    return first > 0 ? first : 0;
  }
  __device__ Int end(Int o) const {
    if (adaptive) return ((o + 1) * in + out - 1) / out;
    const Int last = o * stride - pad + kernel;
    return last < in ? last : in;
  }
  __device__ Int divisor(Int o) const { return adaptive || exclusive ? end(o) - begin(o) : kernel; }
  __device__ Covering<Int> covering(Int i) const {
    if (adaptive) {
      const Int last = ((i + 1) * out + in - 1) / in - 1;
      return {i * out / in, last < out ? last : out - 1};
    }
    const Int padded = i + pad;
    const Int first =
        padded < kernel ? 0 : static_cast<Int>(by_stride.quotient(padded - kernel)) + 1;
    const Int last = static_cast<Int>(by_stride.quotient(padded));
    return {first, last < out ? last : out - 1};
  }
};

template <class T, class Int>
struct PoolBackLoop {
  Axis<Int> rows;
  Axis<Int> columns;
  Int lanes;
  bool max;
  ImagePlaces places;
  const T* x;
  const T* y;
  const T* grad;
  T* out;
  using C = Computed<T>;

  // Whether element (row, column) is the first of its window that is the largest. `image` and
  // `lane`: where the element's plane begins, and its place in a position.
  __device__ bool leads(const T* image, Int oy, Int ox, Int row, Int column, C largest) const {
    for (Int i = rows.begin(oy); i < rows.end(oy); ++i) {
      for (Int j = columns.begin(ox); j < columns.end(ox); ++j) {
        const C value = static_cast<C>(image[(i * columns.in + j) * lanes]);
        if (value == largest) return i == row && j == column;
      }
    }
    return false;
  }

  __device__ void operator()(int64_t at) const {
    const ImagePlace p = places.at(at);
    const Int row = static_cast<Int>(p.row);
    const Int column = static_cast<Int>(p.column);
    const T* const image = x + p.plane * rows.in * columns.in * lanes + p.lane;
    const int64_t outputs = p.plane * rows.out * columns.out * lanes + p.lane;
    const Covering<Int> ys = rows.covering(row);
    const Covering<Int> xs = columns.covering(column);
    const C own = static_cast<C>(x[at]);
    C sum{};
    for (Int oy = ys.first; oy <= ys.last; ++oy) {
      if (row < rows.begin(oy) || row >= rows.end(oy)) continue;
      for (Int ox = xs.first; ox <= xs.last; ++ox) {
        if (column < columns.begin(ox) || column >= columns.end(ox)) continue;
        const int64_t o = outputs + (oy * columns.out + ox) * lanes;
        const C g = static_cast<C>(grad[o]);
        if (!max) {
          sum += g / static_cast<C>(rows.divisor(oy) * columns.divisor(ox));
        } else if (own == static_cast<C>(y[o]) && leads(image, oy, ox, row, column, own)) {
          sum += g;
        }
      }
    }
    out[at] = T(sum);
  }
};

// Four elements share a block of random words.
template <class T>
struct DropoutLoop {
  DropoutArgs args;
  Computed<T> factor;
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
      out[i] = T(keeps ? static_cast<Computed<T>>(x[i]) * factor : Computed<T>{});
    }
  }
};

template <class T>
struct KeepLoop {
  const uint8_t* mask;
  Computed<T> factor;
  const T* x;
  T* out;
  __device__ T element(int64_t i) const {
    return T(mask[i] != 0 ? static_cast<Computed<T>>(x[i]) * factor : Computed<T>{});
  }
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
  const ImagePlaces places(dims.planes, dims.rows.out, dims.columns.out, dims.lanes);
  launch_each(stream, "pool", n, PoolLoop<T>{{dims, max, x}, places, out});
}

template <class T>
void pool_back(RawStream stream, const PoolDims& dims, bool max, const T* x, const T* out,
               const T* grad, T* x_grad) {
  const int64_t n = dims.planes * dims.rows.in * dims.columns.in * dims.lanes;
  const ImagePlaces places(dims.planes, dims.rows.in, dims.columns.in, dims.lanes);
  const auto put = [&]<class Int>(Int) {
    launch_each(
        stream, "pool_back", n,
        PoolBackLoop<T, Int>{Axis<Int>(dims.rows, dims), Axis<Int>(dims.columns, dims),
                             static_cast<Int>(dims.lanes), max, places, x, out, grad, x_grad});
  };
  // What the positions of a plane are counted with, and products of a position with a size.
  const int64_t side =
      std::max({dims.rows.in, dims.columns.in, dims.rows.out, dims.columns.out}) + 1;
  if (side * side * dims.lanes <= INT32_MAX) {
    put(int32_t{});
  } else {
    put(int64_t{});
  }
}

template <class T>
void dropout(RawStream stream, const DropoutArgs& args, Computed<T> factor, const T* x,
             uint8_t* mask, T* out, int64_t n) {
  launch_each(stream, "dropout", (n + 3) / 4, DropoutLoop<T>{args, factor, x, mask, out, n});
}

template <class T>
void keep_masked(RawStream stream, const uint8_t* mask, Computed<T> factor, const T* x, T* out,
                 int64_t n) {
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
  template void dropout(RawStream, const DropoutArgs&, Computed<T>, const T*, uint8_t*, T*,    \
                        int64_t);                                                              \
  template void keep_masked(RawStream, const uint8_t*, Computed<T>, const T*, T*, int64_t)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
FLEET_INSTANTIATE(__half);
FLEET_INSTANTIATE(__nv_bfloat16);
#undef FLEET_INSTANTIATE
template void top_k_back(RawStream, int64_t, int64_t, int64_t, const int64_t*, const float*,
                         float*);
template void top_k_back(RawStream, int64_t, int64_t, int64_t, const int64_t*, const double*,
                         double*);
#define FLEET_TOP_K(T) \
  template void top_k(RawStream, int64_t, int64_t, int64_t, const T*, T*, int64_t*)
FLEET_TOP_K(int32_t);
FLEET_TOP_K(int64_t);
FLEET_TOP_K(float);
FLEET_TOP_K(double);
#undef FLEET_TOP_K

}  // namespace fleet::fluid::cuda
