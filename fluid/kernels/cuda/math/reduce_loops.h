// Reductions over some dimensions; conventions of fluid/kernels/cuda/loops.h.
#pragma once

#include <algorithm>

#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

// One result of n elements.
inline SumDims sum_of_all(int64_t n) {
  SumDims dims;
  dims.gone_rank = 1;
  dims.terms = dims.gone_size[0] = n;
  dims.gone_step[0] = 1;
  return dims;
}

// How a reduction is carried out, which its dimensions decide.
struct ReduceParts {
  int64_t count = 1;   // of each result
  int64_t length = 0;  // of one, but for the last
  bool by_block = true;
};

inline ReduceParts reduce_parts(const SumDims& dims) {
  constexpr int64_t kWanted = 1 << 19;  // threads that keep a device busy
  constexpr int64_t kShortest = 16;     // terms of a thread
  ReduceParts parts;
  parts.by_block = dims.gone_rank == 0 || dims.gone_step[dims.gone_rank - 1] == 1;
  const int64_t threads = parts.by_block ? 256 : 1;
  const int64_t wanted = kWanted / std::max<int64_t>(1, dims.results * threads);
  const int64_t most = dims.terms / (kShortest * threads);
  parts.count = std::max<int64_t>(1, std::min(wanted, most));
  parts.length = (dims.terms + parts.count - 1) / std::max<int64_t>(1, parts.count);
  return parts;
}

// Elements that a reduction needs for the results of parts.
inline int64_t reduce_partials(const SumDims& dims) {
  const int64_t parts = reduce_parts(dims).count;
  return parts == 1 ? 0 : parts * dims.results;
}

// `partial` has reduce_partials(dims) elements. T: float, double, int32, int64.
enum class Reduce { kSum, kMax, kMin, kProd };
template <class T>
void reduce(RawStream stream, Reduce how, const SumDims& dims, const T* x, T divisor, T* partial,
            T* out);
// Of truth values: all of them, or any.
void reduce_truth(RawStream stream, bool all, const SumDims& dims, const bool* x, bool* partial,
                  bool* out);

// Each element of x gets what its result has, over `divisor`.
template <class T>
void spread(RawStream stream, const SumDims& dims, const T* grad, T divisor, T* out);
// Each element that equals its result gets the result's gradient, others 0.
template <class T>
void spread_to_equal(RawStream stream, const SumDims& dims, const T* x, const T* value,
                     const T* grad, T* out);
// Gradient of products: the product of the others times the gradient. One block a result.
template <class T>
void product_back(RawStream stream, const SumDims& dims, const T* x, const T* value, const T* grad,
                  T* out);

// Whether all elements are finite, any is infinite, any is no number.
enum class Finite { kAll, kHasInf, kHasNan };
template <class T>
void finite(RawStream stream, Finite question, const SumDims& dims, const T* x, bool* partial,
            bool* out);

}  // namespace fleet::fluid::cuda
