#include <algorithm>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "transport/nccl/cuda/tree_sum_impl.h"

namespace fleet::transport::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr size_t kMostBlocks = 65535;

template <class T>
struct Same {
  using Wide = T;
  static __device__ T widen(T value) { return value; }
  static __device__ T round(T value) { return value; }
};

template <class T>
struct Form : Same<T> {};

template <>
struct Form<__half> {
  using Wide = float;
  static __device__ float widen(__half value) { return __half2float(value); }
  static __device__ __half round(float value) { return __float2half_rn(value); }
};

template <>
struct Form<__nv_bfloat16> {
  using Wide = float;
  static __device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
  static __device__ __nv_bfloat16 round(float value) { return __float2bfloat16_rn(value); }
};

template <class T>
__device__ typename Form<T>::Wide operand(const void* const* arrays,
                                          const typename Form<T>::Wide* slots, int32_t id,
                                          size_t i) {
  return id < 0 ? slots[~id] : Form<T>::widen(static_cast<const T*>(arrays[id])[i]);
}

// `out` may be one of the arrays: an element of it is written when all were read.
template <class T>
__global__ void tree_sum(const void* const* arrays, const Addition* additions, int32_t how_many,
                         T* out, size_t count) {
  using Wide = typename Form<T>::Wide;
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    Wide slots[kAdditionSlots];
    Wide sum = operand<T>(arrays, slots, 0, i);  // of a single array
    for (int32_t k = 0; k < how_many; ++k) {
      sum = operand<T>(arrays, slots, additions[k].left, i) +
            operand<T>(arrays, slots, additions[k].right, i);
      slots[additions[k].slot] = sum;
    }
    out[i] = Form<T>::round(sum);
  }
}

template <class T>
__global__ void multiply(T* values, T factor, size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    values[i] *= factor;
  }
}

unsigned blocks_for(size_t count) {
  return static_cast<unsigned>(std::min(kMostBlocks, (count + kThreads - 1) / kThreads));
}

template <class T>
void launch_multiply_as(void* values, size_t count, double factor, cudaStream_t stream) {
  multiply<T><<<blocks_for(count), kThreads, 0, stream>>>(static_cast<T*>(values),
                                                          static_cast<T>(factor), count);
}

template <class T>
void launch(const void* const* arrays, const Addition* additions, int32_t how_many, void* out,
            size_t count, cudaStream_t stream) {
  tree_sum<T><<<blocks_for(count), kThreads, 0, stream>>>(arrays, additions, how_many,
                                                          static_cast<T*>(out), count);
}

}  // namespace

cudaError_t launch_tree_sum(ElementType type, const void* const* arrays, const Addition* additions,
                            int32_t how_many, void* out, size_t count, cudaStream_t stream) {
  switch (type) {
    case ElementType::kFloat32:
      launch<float>(arrays, additions, how_many, out, count, stream);
      break;
    case ElementType::kFloat64:
      launch<double>(arrays, additions, how_many, out, count, stream);
      break;
    case ElementType::kInt64:
      // Sums wrap, as the CPU's do.
      launch<unsigned long long>(arrays, additions, how_many, out, count, stream);
      break;
    case ElementType::kFloat16:
      launch<__half>(arrays, additions, how_many, out, count, stream);
      break;
    case ElementType::kBFloat16:
      launch<__nv_bfloat16>(arrays, additions, how_many, out, count, stream);
      break;
  }
  return cudaGetLastError();
}

cudaError_t launch_multiply(ElementType type, void* values, size_t count, double factor,
                            cudaStream_t stream) {
  if (type == ElementType::kFloat32) launch_multiply_as<float>(values, count, factor, stream);
  if (type == ElementType::kFloat64) launch_multiply_as<double>(values, count, factor, stream);
  return cudaGetLastError();
}

}  // namespace fleet::transport::cuda
