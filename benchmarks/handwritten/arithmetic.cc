#include "benchmarks/handwritten/arithmetic.h"

namespace fleet::benchmarks {

FLEET_WIDEST void sgd_step(float* __restrict p, const float* __restrict g, float rate, int n) {
  for (int i = 0; i < n; ++i) p[i] -= rate * g[i];
}

FLEET_WIDEST void sgd_step_of_two(float* __restrict p, const float* __restrict a,
                                  const float* __restrict b, float rate, int n) {
  for (int i = 0; i < n; ++i) p[i] -= rate * (a[i] + b[i]);
}

FLEET_WIDEST void add(float* sum, const float* a, const float* b, int n) {
#pragma omp simd
  for (int i = 0; i < n; ++i) sum[i] = a[i] + b[i];
}

}  // namespace fleet::benchmarks
