// Streams of CUDA devices.
#pragma once

#include <memory>

#include "transport/nccl/device_queue.h"

namespace fleet::transport {

// A stream of the device that runs beside its default stream; follow_compute() waits for that one
// and all that wait for it. Buffers may outlive the queue. Throws Error: kNotSupported in a build
// without CUDA, and with CUDA's words when the device cannot.
std::unique_ptr<DeviceQueue> make_cuda_queue(int device);

}  // namespace fleet::transport
