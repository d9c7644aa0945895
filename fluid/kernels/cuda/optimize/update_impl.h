// Updates of many tensors as one kernel.
#pragma once

#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/update_batch_impl.h"

namespace fleet::fluid::cuda {

// The most that a kernel's parameters may take.
constexpr size_t kParameterBytes = 4096;
// Elements of a tensor that a block updates.
constexpr int64_t kElementsOfBlock = int64_t{kThreads} * 8;

// F is a tensor's update: f(i) updates element i and gives what it wrote into the parameter, or
// f.store(i, f.element(i)) does, so that a thread may read several elements before it writes;
// f.begin(), where F has it, is called before by each thread, and f.finish() once when all
// elements are done.
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

// Elements begin + k * kThreads that are below `end`, of kReads at most: whether what was written
// is finite.
template <class F>
__device__ bool update_some(const F& f, int64_t begin, int64_t end) {
  bool finite = true;
  if constexpr (kReadsFirst<F>) {
    if (begin + (kReads - 1) * kThreads < end) {
      decltype(f.element(begin)) values[kReads];
#pragma unroll
      for (int k = 0; k < kReads; ++k) values[k] = f.element(begin + k * kThreads);
#pragma unroll
      for (int k = 0; k < kReads; ++k) {
        finite = isfinite(f.store(begin + k * kThreads, values[k])) && finite;
      }
      return finite;
    }
  }
  const int64_t last = begin + kReads * kThreads < end ? begin + kReads * kThreads : end;
  for (int64_t i = begin; i < last; i += kThreads) {
    if constexpr (kReadsFirst<F>) {
      finite = isfinite(f.store(i, f.element(i))) && finite;
    } else {
      finite = isfinite(f(i)) && finite;
    }
  }
  return finite;
}

// *nonfinite, in host memory, becomes 1 when anything that was written is not finite, and else is
// left alone. Blocks may write the same 1.
template <class F>
__global__ void update_kernel(const __grid_constant__ UpdateList<F> list) {
  int found = 0;
  for (int64_t block = blockIdx.x; block < list.blocks; block += gridDim.x) {
    int k = 0;
    while (k + 1 < list.count && list.tensors[k + 1].first_block <= block) ++k;
    const auto& tensor = list.tensors[k];
    const int64_t begin = (block - tensor.first_block) * kElementsOfBlock;
    const int64_t end = begin + kElementsOfBlock < tensor.n ? begin + kElementsOfBlock : tensor.n;
    F f = tensor.f;
    if constexpr (requires { f.begin(); }) f.begin();
    for (int64_t i = begin + threadIdx.x; i < end; i += kReads * kThreads) {
      if (!update_some(f, i, end)) found = 1;
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
