// How calls of the CUDA libraries fail here.
#pragma once

#include <cuda_runtime_api.h>
#include <string_view>

#include "fluid/core/place.h"

namespace fleet::fluid {

// Throws Error that names the call unless it succeeded.
void check_cuda(cudaError_t result, std::string_view call);

// Devices that this process can use; 0 when the driver or the device is missing. `reason`, unless
// null, is set to CUDA's own words when there is none.
int cuda_device_count(const char** reason = nullptr);

// Makes the place's device the calling thread's while it lives.
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(const Place& place);
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

}  // namespace fleet::fluid
