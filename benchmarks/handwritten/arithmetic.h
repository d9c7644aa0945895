// Loops that the hand-written baselines share, for the machine's widest vectors.
#pragma once

// Of functions: one copy for AVX-512, one for what the project is compiled for (AVX2).
#define FLEET_WIDEST __attribute__((target_clones("avx512f", "default")))

namespace fleet::benchmarks {

// p -= rate * g, n elements.
void sgd_step(float* p, const float* g, float rate, int n);
// p -= rate * (a + b).
void sgd_step_of_two(float* p, const float* a, const float* b, float rate, int n);
// sum = a + b; sum may be a.
void add(float* sum, const float* a, const float* b, int n);

}  // namespace fleet::benchmarks
