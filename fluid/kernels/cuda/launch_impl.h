// What the .cu files share.
#pragma once

#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#ifndef __CUDACC__
#include <functional>
#endif

#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

constexpr int kThreads = 256;

// Functions are parameters of kernels with __grid_constant__: else each thread copies those that
// have arrays, or whose address is taken, into memory of its own.

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

// f(i) for each i below n; where F has element(i), out[i] becomes that.
template <class F>
__global__ void each_kernel(int64_t n, const __grid_constant__ F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    if constexpr (requires { f.element(i); }) {
      f.out[i] = f.element(i);
    } else {
      f(i);
    }
  }
}

// f(row) for each row below n, by a whole block of kThreads threads.
template <class F>
__global__ void each_row_kernel(int64_t n, const __grid_constant__ F f) {
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
void launch_each_row(RawStream stream, const char* name, int64_t n, F f) {
  if (n <= 0) return;
  launch(stream, name, each_row_kernel<F>, blocks_for(n), n, f);
}

constexpr int kWarp = 32;

// The value of the thread whose number differs in these bits, of the same warp. Called by all
// threads of the block alike.
template <class T>
__device__ T from_lane(T value, int bits) {
  constexpr int kWords = static_cast<int>((sizeof(T) + 3) / 4);
  uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(T));
  for (int k = 0; k < kWords; ++k) words[k] = __shfl_xor_sync(0xFFFFFFFFU, words[k], bits);
  memcpy(&value, words, sizeof(T));
  return value;
}

// Combines one value of each thread of the team; every thread gets the result. `combine` gives the
// same for both orders of its values. The order is a tree over the threads' numbers. Called by all
// threads of the block alike.
template <class T, class F>
__device__ T combine_warp(T value, F combine) {
  for (int bits = kWarp / 2; bits > 0; bits /= 2) value = combine(value, from_lane(value, bits));
  return value;
}
template <class T, class F>
__device__ T combine_block(T value, F combine) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ T values[kWarps];
  value = combine_warp(value, combine);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) values[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (int width = kWarps / 2; width > 0; width /= 2) {
    if (width == kWarps / 2) {
      value = combine(values[threadIdx.x % width], values[threadIdx.x % width + width]);
    } else {
      value = combine(value, from_lane(value, width));
    }
  }
  return value;
}

// Who works on a row: all threads of a block, or of a warp.
struct BlockTeam {
  static constexpr int kSize = kThreads;
  template <class T, class F>
  __device__ static T combine(T value, F combine) {
    return combine_block(value, combine);
  }
};
struct WarpTeam {
  static constexpr int kSize = kWarp;
  template <class T, class F>
  __device__ static T combine(T value, F combine) {
    return combine_warp(value, combine);
  }
};
template <class Team>
__device__ int64_t team_thread() {
  return threadIdx.x % Team::kSize;
}
template <class Team, class T>
__device__ T sum_of_team(T value) {
  return Team::combine(value, [](T a, T b) { return a + b; });
}
// The largest; NaN when any is.
template <class Team, class T>
__device__ T max_of_team(T value) {
  return Team::combine(value, [](T a, T b) { return b > a || b != b ? b : a; });
}

template <class T>
__device__ T sum_block(T value) {
  return sum_of_team<BlockTeam>(value);
}

// f.template row<Team>(r) for each row r below n, by a team for each. A row may be worked on by
// several teams, so what they write must not depend on what they wrote before.
template <class Team, class F>
__global__ void team_kernel(int64_t n, const __grid_constant__ F f) {
  constexpr int64_t kTeams = kThreads / Team::kSize;
  const int64_t own = threadIdx.x / Team::kSize;
  for (int64_t row = blockIdx.x * kTeams; row < n; row += gridDim.x * kTeams) {
    f.template row<Team>(row + own < n ? row + own : n - 1);
  }
}

// A warp works on rows of up to so many elements.
constexpr int64_t kWarpRow = 1024;

template <class F>
void launch_rows(RawStream stream, const char* name, int64_t n, int64_t elements, F f) {
  if (n <= 0) return;
  if (elements <= kWarpRow) {
    constexpr int64_t kTeams = kThreads / kWarp;
    launch(stream, name, team_kernel<WarpTeam, F>, blocks_for((n + kTeams - 1) / kTeams), n, f);
  } else {
    launch(stream, name, team_kernel<BlockTeam, F>, blocks_for(n), n, f);
  }
}

}  // namespace fleet::fluid::cuda
