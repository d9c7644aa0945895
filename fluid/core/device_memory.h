// The seam to the memory of devices. no_cuda/ implements it for builds without the toolkit, cuda/
// for builds with it.
#pragma once

#include <cstddef>

#include "base/buffer.h"
#include "fluid/core/place.h"

namespace fleet::fluid {

// Memory of a device; throws Error (not supported) when this build or this machine does not have
// it. Memory is given back in the order of the device's work: whatever was started before still has
// it.
Allocator& device_allocator(const Place& place);

// Copies between two places, one of them at least a device, after the work that was started on
// the devices; waits for a copy to or from the host. The ranges must not overlap.
void copy_device_memory(void* to, const Place& to_place, const void* from, const Place& from_place,
                        size_t bytes);

}  // namespace fleet::fluid
