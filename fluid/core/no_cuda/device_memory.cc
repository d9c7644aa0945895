#include "fluid/core/device_memory.h"

#include "base/error.h"

namespace fleet::fluid {
namespace {

[[noreturn]] void throw_no_cuda(const Place& place) {
  throw_error(ErrorCode::kNotSupported, {.what = "this build has no memory for that device",
                                         .where = place.to_string(),
                                         .expected = "cpu",
                                         .got = place.to_string(),
                                         .fix = "build with the preset cuda, or use CPUPlace()"});
}

}  // namespace

Allocator& device_allocator(const Place& place) {
  throw_no_cuda(place);
}

void copy_device_memory(void*, const Place& to_place, const void*, const Place& from_place,
                        size_t) {
  throw_no_cuda(to_place.is_cpu() ? from_place : to_place);
}

}  // namespace fleet::fluid
