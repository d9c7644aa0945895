// Streams of CUDA devices.
#pragma once

#include <memory>

#include "transport/nccl/device_queue.h"

namespace fleet::transport {

// A stream of the device that runs beside others. `compute` (a cudaStream_t, which must outlive the
// queue) is where the calling thread puts its work, as follow_compute() and lead_compute() have it;
// null is the default stream and all that wait for it. Buffers may outlive the queue. Throws Error:
// kNotSupported in a build without CUDA, and with CUDA's words when the device cannot.
std::unique_ptr<DeviceQueue> make_cuda_queue(int device, void* compute = nullptr);

}  // namespace fleet::transport
