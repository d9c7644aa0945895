// Ops in a row, of one kind and on tensors of their own, which are one kernel; conventions of
// fluid/kernels/cuda/loops.h. T: float or double.
#pragma once

#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

// out[i] = x[i] times, or over, the number; for i < n.
template <class T>
void times_number(const UpdateTarget& target, const T* x, const T* number, T* out, int64_t n);
template <class T>
void over_number(const UpdateTarget& target, const T* x, const T* number, T* out, int64_t n);

// *out = the sum of n elements, with the bits of reduce(). `partial` has
// reduce_partials(sum_of_all(n)) elements, which no other op of the row uses.
template <class T>
void sum_all(const UpdateTarget& target, const T* x, int64_t n, T* partial, T* out);

}  // namespace fleet::fluid::cuda
