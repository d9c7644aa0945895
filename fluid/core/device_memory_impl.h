// The devices of this build: no_cuda/ for builds without the toolkit, cuda/ for builds with it.
#pragma once

#include "fluid/core/device_memory.h"

namespace fleet::fluid::built_in {

int device_count();
Allocator& device_allocator(const Place& place);
void copy_device_memory(void* to, const Place& to_place, const void* from, const Place& from_place,
                        size_t bytes);

}  // namespace fleet::fluid::built_in
