// Work on many tensors that is one kernel; for .cu files.
#pragma once

#include "fluid/kernels/cuda/launch_impl.h"

namespace fleet::fluid::cuda {

// The most that a kernel's parameters may take.
constexpr size_t kParameterBytes = 4096;
// Elements of a tensor that a block goes over, where these are independent.
constexpr int64_t kElementsOfBlock = int64_t{kThreads} * 8;

inline int64_t blocks_of_elements(int64_t n) {
  return (n + kElementsOfBlock - 1) / kElementsOfBlock;
}

// F is what is done with a tensor of n elements.
template <class F>
struct WorkList {
  struct Tensor {
    F f;
    int64_t n;
    int64_t first_block;
  };
  static constexpr int kMost = static_cast<int>((kParameterBytes - 64) / sizeof(Tensor));

  int64_t blocks = 0;
  int count = 0;
  Tensor tensors[kMost];

  bool is_full() const { return count == kMost; }
  // For so many blocks.
  void add(const F& f, int64_t n, int64_t more_blocks) {
    tensors[count++] = {f, n, blocks};
    blocks += more_blocks;
  }
  void clear() {
    blocks = 0;
    count = 0;
  }
};

// The last tensor that begins at the block or before.
template <class F>
__device__ int tensor_of(const WorkList<F>& list, int64_t block) {
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

}  // namespace fleet::fluid::cuda
