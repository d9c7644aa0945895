// Reductions for .cu files: a block for each result where the elements of a result lie together,
// else a thread for each, so that neighbouring threads read neighbours. Long reductions are cut
// into parts, whose results are reduced in turn. Shapes alone fix the order.
#pragma once

#include "fluid/kernels/cuda/divisor_impl.h"
#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/math/reduce_loops.h"

namespace fleet::fluid::cuda {

// SumDims for the device.
class SumPlaces {
 public:
  SumPlaces(const SumDims& dims)
      : results(dims.results),
        terms(dims.terms),
        kept_(dims.kept_rank, dims.kept_size, {dims.kept_step}),
        gone_(dims.gone_rank, dims.gone_size, {dims.gone_step}) {}

  // Where the elements of result i begin, and its element i from there.
  __device__ int64_t kept(int64_t i) const { return kept_.at(i).of[0]; }
  __device__ int64_t gone(int64_t i) const { return gone_.at(i).of[0]; }

  int64_t results;
  int64_t terms;

 private:
  Places<1> kept_;
  Places<1> gone_;
};

// Combine has start<T>(), join(a, b) and finish(result, divisor). Value gives the element at a
// position of the array, and may be told the number of the result that it is for.
template <class Value>
__device__ auto value_at(const Value& value, int64_t at, int64_t result) {
  if constexpr (requires { value(at, result); }) {
    return value(at, result);
  } else {
    return value(at);
  }
}

// Results are of type Out.
template <class T, class Combine, class Out, class Value>
struct ReduceByBlock {
  SumPlaces places;
  ReduceParts parts;
  Value value;
  T divisor;
  Out* out;
  __device__ void operator()(int64_t row) const {
    const int64_t result = row / parts.count;
    const int64_t base = places.kept(result);
    const int64_t first = row % parts.count * parts.length;
    const int64_t end = first + parts.length < places.terms ? first + parts.length : places.terms;
    T sum = Combine::template start<T>();
#pragma unroll 4
    for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
      sum = Combine::join(sum, value_at(value, base + places.gone(i), result));
    }
    sum = combine_block(sum, [](T a, T b) { return Combine::join(a, b); });
    if (threadIdx.x == 0) out[row] = Out(Combine::finish(sum, divisor));
  }
};

template <class T, class Combine, class Out, class Value>
struct ReduceByThread {
  SumPlaces places;
  ReduceParts parts;
  Value value;
  T divisor;
  Out* out;
  __device__ void operator()(int64_t i) const {
    const int64_t part = i / places.results;
    const int64_t result = i % places.results;
    const int64_t base = places.kept(result);
    const int64_t first = part * parts.length;
    const int64_t end = first + parts.length < places.terms ? first + parts.length : places.terms;
    T sum = Combine::template start<T>();
#pragma unroll 4
    for (int64_t k = first; k < end; ++k) {
      sum = Combine::join(sum, value_at(value, base + places.gone(k), result));
    }
    out[i] = Out(Combine::finish(sum, divisor));
  }
};

template <class T>
struct ArrayValue {
  const T* x;
  __device__ T operator()(int64_t i) const { return x[i]; }
};

template <class T, class Combine, class Value, class Out>
void launch_parts(RawStream stream, const char* name, const SumDims& dims, const ReduceParts& parts,
                  const Value& value, T divisor, Out* out) {
  if (parts.by_block) {
    launch_each_row(stream, name, dims.results * parts.count,
                    ReduceByBlock<T, Combine, Out, Value>{dims, parts, value, divisor, out});
  } else {
    launch_each(stream, name, dims.results * parts.count,
                ReduceByThread<T, Combine, Out, Value>{dims, parts, value, divisor, out});
  }
}

// `partial` has reduce_parts(dims).partials() elements.
template <class T, class Combine, class Value, class Out>
void launch_reduce(RawStream stream, const char* name, const SumDims& dims, const Value& value,
                   T divisor, T* partial, Out* out) {
  const ReduceParts parts = reduce_parts(dims);
  if (parts.count == 1) {
    return launch_parts<T, Combine>(stream, name, dims, parts, value, divisor, out);
  }
  launch_parts<T, Combine>(stream, name, dims, parts, value, T{1}, partial);
  // Parts of a result lie together behind blocks, and one row of results apart behind threads.
  SumDims rest;
  rest.kept_rank = rest.gone_rank = 1;
  rest.results = rest.kept_size[0] = dims.results;
  rest.terms = rest.gone_size[0] = parts.count;
  rest.kept_step[0] = parts.by_block ? parts.count : 1;
  rest.gone_step[0] = parts.by_block ? 1 : dims.results;
  // One thread would wait for many parts, one after the other.
  const bool by_block = parts.by_block || parts.count >= kWarp;
  const ReduceParts whole = {.count = 1, .length = parts.count, .by_block = by_block};
  launch_parts<T, Combine>(stream, name, rest, whole, ArrayValue<T>{partial}, divisor, out);
}

struct Quotient {
  template <class T>
  __device__ static T finish(T result, T divisor) {
    return result / divisor;
  }
};

struct SumOf : Quotient {
  template <class T>
  __device__ static T start() {
    return T{};
  }
  template <class T>
  __device__ static T join(T a, T b) {
    return a + b;
  }
};

// Two sums of one pass.
template <class T>
struct Two {
  T a;
  T b;
};
struct TwoSums {
  template <class T>
  __device__ static T start() {
    return T{0, 0};
  }
  template <class T>
  __device__ static T join(T x, T y) {
    return T{x.a + y.a, x.b + y.b};
  }
  template <class T>
  __device__ static T finish(T result, T) {
    return result;
  }
};

}  // namespace fleet::fluid::cuda
