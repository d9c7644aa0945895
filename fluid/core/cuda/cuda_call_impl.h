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

// A stream that does not wait for the device's default stream.
cudaStream_t make_cuda_stream(const Place& place);
// The device's streams, made at its first use and never destroyed: of its work (work_stream in
// fluid/core/device_memory.h), and of copies to the host beside that.
cudaStream_t cuda_work_stream(const Place& place);
cudaStream_t cuda_read_stream(const Place& place);

// While the calling thread records what it puts on a stream: copies and memory of this folder,
// which would not be part of it, throw Error (not supported).
void set_recording_here(bool recording);

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
