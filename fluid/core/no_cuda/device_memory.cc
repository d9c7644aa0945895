#include "base/error.h"
#include "fluid/core/device_memory_impl.h"

namespace fleet::fluid::built_in {
namespace {

[[noreturn]] void throw_no_cuda(const Place& place) {
  throw_error(ErrorCode::kNotSupported, {.what = "this build has no memory for that device",
                                         .where = place.to_string(),
                                         .expected = "cpu",
                                         .got = place.to_string(),
                                         .fix = "build with the preset cuda, or use CPUPlace()"});
}

}  // namespace

int device_count() {
  return 0;
}

Allocator& device_allocator(const Place& place) {
  throw_no_cuda(place);
}

void* work_stream(const Place&) {
  return nullptr;
}

std::unique_ptr<FeedCopier> make_feed_copier(const Place& place) {
  throw_no_cuda(place);
}

std::unique_ptr<FeedCopier> make_value_copier(const Place& place) {
  throw_no_cuda(place);
}

std::unique_ptr<HostCopier> make_host_copier(const Place& place) {
  throw_no_cuda(place);
}

std::unique_ptr<DevicePoint> mark_device(const Place& place) {
  throw_no_cuda(place);
}

void copy_device_memory(void*, const Place& to_place, const void*, const Place& from_place,
                        size_t) {
  throw_no_cuda(to_place.is_cpu() ? from_place : to_place);
}

}  // namespace fleet::fluid::built_in
