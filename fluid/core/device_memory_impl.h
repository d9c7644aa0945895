// The devices of this build: no_cuda/ for builds without the toolkit, cuda/ for builds with it.
#pragma once

#include "fluid/core/device_memory.h"

namespace fleet::fluid {

// Of devices whose work is done when a call returns.
std::unique_ptr<FeedCopier> make_feed_copier_at_once(const Place& place);
std::unique_ptr<DevicePoint> point_reached(const Place& place);

namespace built_in {

int device_count();
Allocator& device_allocator(const Place& place);
void* work_stream(const Place& place);
std::unique_ptr<FeedCopier> make_feed_copier(const Place& place);
std::unique_ptr<FeedCopier> make_value_copier(const Place& place);
std::unique_ptr<HostCopier> make_host_copier(const Place& place);
std::unique_ptr<DevicePoint> mark_device(const Place& place);
void copy_device_memory(void* to, const Place& to_place, const void* from, const Place& from_place,
                        size_t bytes);

}  // namespace built_in

}  // namespace fleet::fluid
