// Scaling, constants, sums of several arrays.
#include "fluid/kernels/cuda/launch_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
struct ScaleLoop {
  ScaleArgs<T> args;
  const T* x;
  T* out;
  __device__ T element(int64_t i) const {
    const T by = args.factor != nullptr ? *args.factor : args.scale;
    return args.bias_after_scale ? x[i] * by + args.bias : (x[i] + args.bias) * by;
  }
};

template <class T>
struct FillLoop {
  T value;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = value; }
};

template <class T>
struct FillQuotientLoop {
  const T* value;
  T divisor;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = *value / divisor; }
};

// Nodes of the tree as they are completed from the left, like the digits of a binary counter.
template <class T>
struct TreeSumLoop {
  Summands<T> summands;
  T* out;
  __device__ T element(int64_t i) const {
    T nodes[8];
    int depth = 0;
    for (int k = 0; k < summands.count; ++k) {
      T sum = summands.arrays[k][i];
      for (int digit = k; digit & 1; digit >>= 1) sum = nodes[--depth] + sum;
      nodes[depth++] = sum;
    }
    while (depth > 1) {
      --depth;
      nodes[depth - 1] = nodes[depth - 1] + nodes[depth];
    }
    return nodes[0];
  }
};

}  // namespace

template <class T>
void scale(RawStream stream, const ScaleArgs<T>& args, const T* x, T* out, int64_t n) {
  launch_each(stream, "scale", n, ScaleLoop<T>{args, x, out});
}

template <class T>
void fill(RawStream stream, T value, T* out, int64_t n) {
  launch_each(stream, "fill", n, FillLoop<T>{value, out});
}

template <class T>
void fill_quotient(RawStream stream, const T* value, T divisor, T* out, int64_t n) {
  launch_each(stream, "fill_quotient", n, FillQuotientLoop<T>{value, divisor, out});
}

template <class T>
void tree_sum(RawStream stream, const Summands<T>& summands, T* out, int64_t n) {
  launch_each(stream, "tree_sum", n, TreeSumLoop<T>{summands, out});
}

#define FLEET_INSTANTIATE(T)                                                  \
  template void scale(RawStream, const ScaleArgs<T>&, const T*, T*, int64_t); \
  template void fill_quotient(RawStream, const T*, T, T*, int64_t);           \
  template void tree_sum(RawStream, const Summands<T>&, T*, int64_t);         \
  template void fill(RawStream, T, T*, int64_t);
FLEET_INSTANTIATE(float)
FLEET_INSTANTIATE(double)
#undef FLEET_INSTANTIATE

template void tree_sum(RawStream, const Summands<int64_t>&, int64_t*, int64_t);
template void fill_quotient(RawStream, const bool*, bool, bool*, int64_t);
template void fill_quotient(RawStream, const uint8_t*, uint8_t, uint8_t*, int64_t);
template void fill_quotient(RawStream, const int8_t*, int8_t, int8_t*, int64_t);
template void fill_quotient(RawStream, const int16_t*, int16_t, int16_t*, int64_t);
template void fill_quotient(RawStream, const int32_t*, int32_t, int32_t*, int64_t);
template void fill_quotient(RawStream, const int64_t*, int64_t, int64_t*, int64_t);
template void scale(RawStream, const ScaleArgs<int32_t>&, const int32_t*, int32_t*, int64_t);
template void scale(RawStream, const ScaleArgs<int64_t>&, const int64_t*, int64_t*, int64_t);
template void fill(RawStream, bool, bool*, int64_t);
template void fill(RawStream, uint8_t, uint8_t*, int64_t);
template void fill(RawStream, int8_t, int8_t*, int64_t);
template void fill(RawStream, int16_t, int16_t*, int64_t);
template void fill(RawStream, int32_t, int32_t*, int64_t);
template void fill(RawStream, int64_t, int64_t*, int64_t);

}  // namespace fleet::fluid::cuda
