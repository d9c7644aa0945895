// Elementwise functions, broadcasting, sums, constants.
#include "fluid/kernels/cuda/launch_impl.h"

namespace fleet::fluid::cuda {
namespace {

struct Relu {
  template <class T>
  __device__ static T value(T x) {
    return x > T{0} ? x : x == x ? T{0} : x;
  }
  template <class T>
  __device__ static T back(T out, T g) {
    return out > T{0} ? g : T{0};
  }
};
struct Sigmoid {
  template <class T>
  __device__ static T value(T x) {
    return T{1} / (T{1} + exp(-x));
  }
  template <class T>
  __device__ static T back(T out, T g) {
    return g * out * (T{1} - out);
  }
};
struct Tanh {
  template <class T>
  __device__ static T value(T x) {
    return tanh(x);
  }
  template <class T>
  __device__ static T back(T out, T g) {
    return g * (T{1} - out * out);
  }
};
struct Square {
  template <class T>
  __device__ static T value(T x) {
    return x * x;
  }
  template <class T>
  __device__ static T back(T x, T g) {
    return T{2} * g * x;
  }
};

template <class F>
void with_unary(Unary function, F f) {
  switch (function) {
    case Unary::kRelu:
      return f(Relu{});
    case Unary::kSigmoid:
      return f(Sigmoid{});
    case Unary::kTanh:
      return f(Tanh{});
    case Unary::kSquare:
      return f(Square{});
  }
}

template <class T, class Function>
struct UnaryLoop {
  const T* x;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = Function::value(x[i]); }
};

template <class T, class Function>
struct UnaryBackLoop {
  const T* in;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = Function::back(in[i], grad[i]); }
};

template <class T>
struct AddLoop {
  BroadcastDims dims;
  const T* x;
  const T* y;
  T y_factor;
  T* out;
  __device__ void operator()(int64_t i) const {
    int64_t rest = i;
    int64_t xi = 0;
    int64_t yi = 0;
    for (int d = dims.rank - 1; d >= 0; --d) {
      const int64_t at = rest % dims.size[d];
      rest /= dims.size[d];
      xi += at * dims.x_step[d];
      yi += at * dims.y_step[d];
    }
    out[i] = x[xi] + y_factor * y[yi];
  }
};

__device__ int64_t position(int rank, const int64_t* size, const int64_t* step, int64_t i) {
  int64_t at = 0;
  for (int d = rank - 1; d >= 0; --d) {
    at += i % size[d] * step[d];
    i /= size[d];
  }
  return at;
}

template <class T>
struct SumLoop {
  SumDims dims;
  const T* x;
  T divisor;
  T* out;
  __device__ void operator()(int64_t row) const {
    const T* from = x + position(dims.kept_rank, dims.kept_size, dims.kept_step, row);
    T sum{};
    for (int64_t i = threadIdx.x; i < dims.terms; i += kThreads) {
      sum += from[position(dims.gone_rank, dims.gone_size, dims.gone_step, i)];
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0) out[row] = sum / divisor;
  }
};

template <class T>
struct ScaleLoop {
  ScaleArgs<T> args;
  const T* x;
  T* out;
  __device__ void operator()(int64_t i) const {
    const T by = args.factor != nullptr ? *args.factor : args.scale;
    out[i] = args.bias_after_scale ? x[i] * by + args.bias : (x[i] + args.bias) * by;
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
  __device__ void operator()(int64_t i) const {
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
    out[i] = nodes[0];
  }
};

}  // namespace

template <class T>
void unary(RawStream stream, Unary function, const T* x, T* out, int64_t n) {
  with_unary(function, [=](auto f) {
    launch_each(stream, "unary", n, UnaryLoop<T, decltype(f)>{x, out});
  });
}

template <class T>
void unary_back(RawStream stream, Unary function, const T* in, const T* grad, T* out, int64_t n) {
  with_unary(function, [=](auto f) {
    launch_each(stream, "unary_back", n, UnaryBackLoop<T, decltype(f)>{in, grad, out});
  });
}

template <class T>
void add(RawStream stream, const BroadcastDims& dims, const T* x, const T* y, T y_factor, T* out,
         int64_t n) {
  launch_each(stream, "add", n, AddLoop<T>{dims, x, y, y_factor, out});
}

template <class T>
void sum_dims(RawStream stream, const SumDims& dims, const T* x, T divisor, T* out) {
  launch_each_row(stream, "sum_dims", dims.results, SumLoop<T>{dims, x, divisor, out});
}

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

#define FLEET_INSTANTIATE(T)                                                              \
  template void unary(RawStream, Unary, const T*, T*, int64_t);                           \
  template void unary_back(RawStream, Unary, const T*, const T*, T*, int64_t);            \
  template void add(RawStream, const BroadcastDims&, const T*, const T*, T, T*, int64_t); \
  template void sum_dims(RawStream, const SumDims&, const T*, T, T*);                     \
  template void scale(RawStream, const ScaleArgs<T>&, const T*, T*, int64_t);             \
  template void fill_quotient(RawStream, const T*, T, T*, int64_t);                       \
  template void tree_sum(RawStream, const Summands<T>&, T*, int64_t);                     \
  template void fill(RawStream, T, T*, int64_t);
FLEET_INSTANTIATE(float)
FLEET_INSTANTIATE(double)
#undef FLEET_INSTANTIATE

template void tree_sum(RawStream, const Summands<int64_t>&, int64_t*, int64_t);
template void fill(RawStream, bool, bool*, int64_t);
template void fill(RawStream, int32_t, int32_t*, int64_t);
template void fill(RawStream, int64_t, int64_t*, int64_t);

}  // namespace fleet::fluid::cuda
