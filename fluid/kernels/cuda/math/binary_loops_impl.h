// Elementwise functions of two tensors with broadcasting, their gradients and comparisons;
// conventions of fluid/kernels/cuda/loops.h.
#pragma once

#include "fluid/kernels/cuda/halves_impl.h"
#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

template <class T, class R>
struct BinaryFunction {
  const char* op;
  // n elements of the result.
  void (*value)(RawStream, const BroadcastDims&, const T* x, const T* y, R* out, int64_t n);
};

// What the gradient of a result passes back to one operand: `sums` says which elements of the
// result (in its row-major order) were made of each element of the operand. `partial` has
// reduce_partials(sums) elements.
template <class T>
using BinaryBack = void (*)(RawStream, const BroadcastDims&, const SumDims& sums, const T* x,
                            const T* y, const T* grad, Computed<T>* partial, T* out);
template <class T>
struct BinaryGradient {
  const char* op;
  BinaryBack<T> to_x;
  BinaryBack<T> to_y;
};

template <class Row>
struct BinaryRows {
  const Row* first;
  int count;
  const Row* begin() const { return first; }
  const Row* end() const { return first + count; }
};

// Results of the operands' type. T: float, double, __half, __nv_bfloat16, int32, int64.
template <class T>
BinaryRows<BinaryFunction<T, T>> binary_functions();
// T: float, double, __half or __nv_bfloat16.
template <class T>
BinaryRows<BinaryGradient<T>> binary_gradients();
// T: bool, int32, int64, float, double.
template <class T>
BinaryRows<BinaryFunction<T, bool>> comparisons();
BinaryRows<BinaryFunction<bool, bool>> logical_functions();

}  // namespace fleet::fluid::cuda
