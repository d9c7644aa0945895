// Makes C++ of a .cu file, for g++: included before all else of it. Blocks run one after another,
// so that what they share is static.
#pragma once

#include <algorithm>
#include <cmath>
#include <cuda_runtime.h>
#include <math.h>  // overloads for float in the global namespace, as in device code

#undef __shared__
#define __shared__ static
#undef __forceinline__
#define __forceinline__ inline
#undef __restrict__
#undef __grid_constant__
#define __grid_constant__

namespace fleet::testing {

struct DeviceIndex {
  unsigned x = 0;
};

}  // namespace fleet::testing

// Of the thread that runs.
extern fleet::testing::DeviceIndex threadIdx;  // NOLINT
extern fleet::testing::DeviceIndex blockIdx;   // NOLINT
extern fleet::testing::DeviceIndex blockDim;   // NOLINT
extern fleet::testing::DeviceIndex gridDim;    // NOLINT

void __syncthreads();             // NOLINT
int __syncthreads_or(int truth);  // NOLINT
// Called by all threads of the block.
unsigned __shfl_xor_sync(unsigned lanes, unsigned value, int bits);  // NOLINT

// Threads change at barriers only.
inline int atomicMax(int* at, int value) {  // NOLINT
  const int before = *at;
  *at = std::max(before, value);
  return before;
}

using std::max;
using std::min;

inline float rsqrt(float x) {
  return 1.0F / std::sqrt(x);
}
inline double rsqrt(double x) {
  return 1.0 / std::sqrt(x);
}
