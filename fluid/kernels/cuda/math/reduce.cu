#include <limits>

#include "fluid/kernels/cuda/math/reduce_impl.h"

namespace fleet::fluid::cuda {
namespace {

struct Itself {
  __device__ static bool finish(bool result, bool) { return result; }
};

struct ProdOf : Quotient {
  template <class T>
  __device__ static T start() {
    return T{1};
  }
  template <class T>
  __device__ static T join(T a, T b) {
    return a * b;
  }
};
template <class T>
constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::lowest();
template <class T>
constexpr T kHighest = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                            : std::numeric_limits<T>::max();
// What is not a number wins.
struct MaxOf : Quotient {
  template <class T>
  __device__ static T start() {
    constexpr T value = kLowest<T>;
    return value;
  }
  template <class T>
  __device__ static T join(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct MinOf : Quotient {
  template <class T>
  __device__ static T start() {
    constexpr T value = kHighest<T>;
    return value;
  }
  template <class T>
  __device__ static T join(T a, T b) {
    return b < a || b != b ? b : a;
  }
};
struct AllOf : Itself {
  template <class T>
  __device__ static T start() {
    return true;
  }
  __device__ static bool join(bool a, bool b) { return a && b; }
};
struct AnyOf : Itself {
  template <class T>
  __device__ static T start() {
    return false;
  }
  __device__ static bool join(bool a, bool b) { return a || b; }
};

// An element's position in the array, by its result and its number among the result's elements.
struct Split {
  Split(const SumDims& dims) : places(dims), terms(dims.terms, dims.terms * dims.results) {}
  __device__ int64_t result(int64_t i) const { return terms.quotient(i); }
  __device__ int64_t at(int64_t i) const {
    const int64_t term = terms.split(i);
    return places.kept(i) + places.gone(term);
  }
  SumPlaces places;
  WideDivisor terms;
};

template <class T>
struct SpreadLoop {
  Split split;
  const T* grad;
  T divisor;
  T* out;
  __device__ void operator()(int64_t i) const {
    out[split.at(i)] = grad[split.result(i)] / divisor;
  }
};
template <class T>
struct SpreadToEqualLoop {
  Split split;
  const T* x;
  const T* value;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t i) const {
    const int64_t at = split.at(i);
    const int64_t result = split.result(i);
    out[at] = x[at] == value[result] ? grad[result] : T{};
  }
};

// Without zeros the whole over the element; with one zero only that one has a gradient.
template <class T>
struct ProductBackLoop {
  SumPlaces places;
  const T* x;
  const T* value;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t row) const {
    const int64_t base = places.kept(row);
    T zeros{};
    T others{1};
    for (int64_t i = threadIdx.x; i < places.terms; i += kThreads) {
      const T element = x[base + places.gone(i)];
      if (element == T{}) {
        zeros += T{1};
      } else {
        others *= element;
      }
    }
    zeros = sum_block(zeros);
    others = combine_block(others, [](T a, T b) { return a * b; });
    for (int64_t i = threadIdx.x; i < places.terms; i += kThreads) {
      const int64_t at = base + places.gone(i);
      const T alone = zeros == T{1} && x[at] == T{} ? others : T{};
      out[at] = grad[row] * (zeros == T{} ? value[row] / x[at] : alone);
    }
  }
};

template <class T, Finite question>
struct FiniteValue {
  const T* x;
  __device__ bool operator()(int64_t i) const {
    if (question == Finite::kAll) return isfinite(x[i]);
    if (question == Finite::kHasInf) return isinf(x[i]);
    return isnan(x[i]);
  }
};

}  // namespace

template <class T>
void sum_dims(RawStream stream, const SumDims& dims, const T* x, T divisor, T* partial, T* out) {
  launch_reduce<T, SumOf>(stream, "sum_dims", dims, ArrayValue<T>{x}, divisor, partial, out);
}

template <class T>
void reduce(RawStream stream, Reduce how, const SumDims& dims, const T* x, T divisor, T* partial,
            T* out) {
  const ArrayValue<T> value{x};
  switch (how) {
    case Reduce::kSum:
      return launch_reduce<T, SumOf>(stream, "reduce_sum", dims, value, divisor, partial, out);
    case Reduce::kMax:
      return launch_reduce<T, MaxOf>(stream, "reduce_max", dims, value, divisor, partial, out);
    case Reduce::kMin:
      return launch_reduce<T, MinOf>(stream, "reduce_min", dims, value, divisor, partial, out);
    case Reduce::kProd:
      return launch_reduce<T, ProdOf>(stream, "reduce_prod", dims, value, divisor, partial, out);
  }
}

void reduce_truth(RawStream stream, bool all, const SumDims& dims, const bool* x, bool* partial,
                  bool* out) {
  const ArrayValue<bool> value{x};
  if (all) {
    launch_reduce<bool, AllOf>(stream, "reduce_all", dims, value, true, partial, out);
  } else {
    launch_reduce<bool, AnyOf>(stream, "reduce_any", dims, value, true, partial, out);
  }
}

template <class T>
void spread(RawStream stream, const SumDims& dims, const T* grad, T divisor, T* out) {
  launch_each(stream, "spread", dims.results * dims.terms,
              SpreadLoop<T>{{dims}, grad, divisor, out});
}

template <class T>
void spread_to_equal(RawStream stream, const SumDims& dims, const T* x, const T* value,
                     const T* grad, T* out) {
  launch_each(stream, "spread_to_equal", dims.results * dims.terms,
              SpreadToEqualLoop<T>{{dims}, x, value, grad, out});
}

template <class T>
void product_back(RawStream stream, const SumDims& dims, const T* x, const T* value, const T* grad,
                  T* out) {
  launch_each_row(stream, "product_back", dims.results,
                  ProductBackLoop<T>{dims, x, value, grad, out});
}

template <class T>
void finite(RawStream stream, Finite question, const SumDims& dims, const T* x, bool* partial,
            bool* out) {
  const char* const name = "finite";
  switch (question) {
    case Finite::kAll:
      return launch_reduce<bool, AllOf>(stream, name, dims, FiniteValue<T, Finite::kAll>{x}, true,
                                        partial, out);
    case Finite::kHasInf:
      return launch_reduce<bool, AnyOf>(stream, name, dims, FiniteValue<T, Finite::kHasInf>{x},
                                        true, partial, out);
    case Finite::kHasNan:
      return launch_reduce<bool, AnyOf>(stream, name, dims, FiniteValue<T, Finite::kHasNan>{x},
                                        true, partial, out);
  }
}

#define FLEET_INSTANTIATE(T)                                                                  \
  template void sum_dims(RawStream, const SumDims&, const T*, T, T*, T*);                     \
  template void spread(RawStream, const SumDims&, const T*, T, T*);                           \
  template void spread_to_equal(RawStream, const SumDims&, const T*, const T*, const T*, T*); \
  template void product_back(RawStream, const SumDims&, const T*, const T*, const T*, T*);    \
  template void finite(RawStream, Finite, const SumDims&, const T*, bool*, bool*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

#define FLEET_REDUCE(T) template void reduce(RawStream, Reduce, const SumDims&, const T*, T, T*, T*)
FLEET_REDUCE(int32_t);
FLEET_REDUCE(int64_t);
FLEET_REDUCE(float);
FLEET_REDUCE(double);
#undef FLEET_REDUCE

}  // namespace fleet::fluid::cuda
