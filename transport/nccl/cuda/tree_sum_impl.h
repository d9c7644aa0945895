// Arithmetic of arrays on a device: sums along the shard tree, products with a number. Internal to
// transport/nccl/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

#include "transport/collective/collective.h"
#include "transport/nccl/additions.h"

namespace fleet::transport::cuda {

// out[i] for i < count. `arrays` and `additions` lie on the device.
cudaError_t launch_tree_sum(ElementType type, const void* const* arrays, const Addition* additions,
                            int32_t how_many, void* out, size_t count, cudaStream_t stream);

// float32 and float64; does nothing to other types.
cudaError_t launch_multiply(ElementType type, void* values, size_t count, double factor,
                            cudaStream_t stream);

}  // namespace fleet::transport::cuda
