// Updates of many tensors as one kernel.
#pragma once

#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/update_batch_impl.h"

namespace fleet::fluid::cuda {

// The most that a kernel's parameters may take.
constexpr size_t kParameterBytes = 4096;
// Elements of a tensor that a block updates.
constexpr int64_t kElementsOfBlock = int64_t{kThreads} * 16;

// F is a tensor's update: f(i) updates element i and gives what it wrote into the parameter.
// f.begin(), where F has it, is called before by each thread, and f.finish() once when all elements
// are done.
template <class F>
struct UpdateList {
  struct Tensor {
    F f;
    int64_t n;
    int64_t first_block;
  };
  static constexpr int kMost = static_cast<int>((kParameterBytes - 64) / sizeof(Tensor));

  uint32_t* nonfinite = nullptr;
  int64_t blocks = 0;
  int count = 0;
  Tensor tensors[kMost];
};

template <class F>
constexpr bool kFinishes = requires(const F& f) {
  f.finish();
};

// The last tensor that begins at the block or before.
template <class F>
__device__ int tensor_of(const UpdateList<F>& list, int64_t block) {
  int low = 0;
  int high = list.count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (list.tensors[middle].first_block <= block) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// *nonfinite, in host memory, becomes 1 when anything that was written is not finite, and else is
// left alone. Blocks may write the same 1.
template <class F>
__global__ void update_kernel(const __grid_constant__ UpdateList<F> list) {
  int found = 0;
  for (int64_t block = blockIdx.x; block < list.blocks; block += gridDim.x) {
    const auto& tensor = list.tensors[tensor_of(list, block)];
    const int64_t begin = (block - tensor.first_block) * kElementsOfBlock;
    const int64_t end = begin + kElementsOfBlock < tensor.n ? begin + kElementsOfBlock : tensor.n;
    F f = tensor.f;
    if constexpr (requires { f.begin(); }) f.begin();
    for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
      if (!isfinite(f(i))) found = 1;
    }
  }
  if (__syncthreads_or(found) != 0 && threadIdx.x == 0) {
    *static_cast<volatile uint32_t*>(list.nonfinite) = 1;
  }
}

template <class F>
__global__ void finish_kernel(const __grid_constant__ UpdateList<F> list) {
  for (int k = static_cast<int>(threadIdx.x); k < list.count; k += kThreads) {
    list.tensors[k].f.finish();
  }
}

template <class F>
void launch_list(RawStream stream, const char* name, UpdateList<F>& list) {
  if (list.blocks > 0) launch(stream, name, update_kernel<F>, blocks_for(list.blocks), list);
  if constexpr (kFinishes<F>) {
    if (list.count > 0) launch(stream, name, finish_kernel<F>, 1U, list);
  }
  list.blocks = 0;
  list.count = 0;
}

template <class F>
void launch_update(const UpdateTarget& target, const char* name, int64_t n, const F& f) {
  UpdateList<F> alone;
  UpdateList<F>& list = target.batch == nullptr ? alone : target.batch->list<UpdateList<F>>();
  list.nonfinite = target.nonfinite;
  list.tensors[list.count] = {f, n, list.blocks};
  list.count += 1;
  list.blocks += (n + kElementsOfBlock - 1) / kElementsOfBlock;
  if (!target.more_follow || list.count == UpdateList<F>::kMost) {
    launch_list(target.stream, name, list);
  }
}

}  // namespace fleet::fluid::cuda
