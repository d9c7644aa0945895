// Averages of parameters; conventions of fluid/kernels/cuda/loops.h. Outputs may be the inputs.
#pragma once

#include "fluid/kernels/cuda/optimize/more_loops.h"
#include "fluid/kernels/functions/averages.h"

namespace fleet::fluid::cuda {

template <class T>
struct AverageArrays {
  functions::AverageWindow window;
  const T* param = nullptr;
  StateArrays<T> sums[3];
  StateArrays<int64_t> counts[3];
};
template <class T>
void accumulate_average(RawStream stream, const AverageArrays<T>& args, int64_t n);

template <class T>
struct LookaheadArrays {
  T alpha{};
  int64_t k = 1;
  StateArrays<T> param;
  StateArrays<T> slow;
  StateArrays<int64_t> step;
};
template <class T>
void lookahead(RawStream stream, const LookaheadArrays<T>& args, int64_t n);

}  // namespace fleet::fluid::cuda
