// What the .cu files share.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#ifndef __CUDACC__
#include <functional>
#endif

#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

constexpr int kThreads = 256;

// Puts a kernel of blocks of kThreads threads on the stream. Without nvcc, tests run it on the host
// (tests/testing/cuda_on_host), where each thread of each block calls the function.
#ifdef __CUDACC__
template <class... Parameters, class... Arguments>
void launch(RawStream stream, const char* name, void (*kernel)(Parameters...), unsigned blocks,
            Arguments... arguments) {
  kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments...);
  check_cuda(cudaGetLastError(), name);
}
#else
void run_on_host(unsigned blocks, std::function<void()> thread);
template <class... Parameters, class... Arguments>
void launch(RawStream, const char*, void (*kernel)(Parameters...), unsigned blocks,
            Arguments... arguments) {
  run_on_host(blocks, [=] { kernel(arguments...); });
}
#endif

// f(i) for each i below n.
template <class F>
__global__ void each_kernel(int64_t n, F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    f(i);
  }
}

// f(i) for each i below n, where f gives what it wrote into a parameter. *nonfinite, in host
// memory, becomes 1 when any of it is not finite, and else is left alone. Blocks may write the
// same 1.
template <class F>
__global__ void update_kernel(int64_t n, F f, uint32_t* nonfinite) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  int found = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    if (!isfinite(f(i))) found = 1;
  }
  if (__syncthreads_or(found) != 0 && threadIdx.x == 0) {
    *static_cast<volatile uint32_t*>(nonfinite) = 1;
  }
}

// f(row) for each row below n, by a whole block of kThreads threads.
template <class F>
__global__ void each_row_kernel(int64_t n, F f) {
  for (int64_t row = blockIdx.x; row < n; row += gridDim.x) f(row);
}

inline unsigned blocks_for(int64_t blocks) {
  constexpr int64_t kMaxBlocks = 65535;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

template <class F>
void launch_each(RawStream stream, const char* name, int64_t n, F f) {
  if (n <= 0) return;
  launch(stream, name, each_kernel<F>, blocks_for((n + kThreads - 1) / kThreads), n, f);
}

template <class F>
void launch_update(RawStream stream, const char* name, int64_t n, F f, uint32_t* nonfinite) {
  if (n <= 0) return;
  launch(stream, name, update_kernel<F>, blocks_for((n + kThreads - 1) / kThreads), n, f,
         nonfinite);
}

template <class F>
void launch_each_row(RawStream stream, const char* name, int64_t n, F f) {
  if (n <= 0) return;
  launch(stream, name, each_row_kernel<F>, blocks_for(n), n, f);
}

// Combines one value of each thread of the block; every thread gets the result. The order is a
// tree over the threads' numbers. `combine` is called by all threads alike.
template <class T, class F>
__device__ T combine_block(T value, F combine) {
  __shared__ T values[kThreads];
  __syncthreads();
  values[threadIdx.x] = value;
  for (int width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      values[threadIdx.x] = combine(values[threadIdx.x], values[threadIdx.x + width]);
    }
  }
  __syncthreads();
  return values[0];
}

template <class T>
__device__ T sum_block(T value) {
  return combine_block(value, [](T a, T b) { return a + b; });
}

// The largest; NaN when any is.
template <class T>
__device__ T max_block(T value) {
  return combine_block(value, [](T a, T b) { return b > a || b != b ? b : a; });
}

}  // namespace fleet::fluid::cuda
