// What streams are on a device and in tests on the host.
#include "fluid/core/device_memory.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/device_kernels_impl.h"

namespace fleet::fluid {
namespace cuda {

std::byte* Stream::scratch_bytes(size_t bytes) {
  if (bytes > scratch_.size()) scratch_ = Buffer(bytes, device_allocator(place_));
  return scratch_.data();
}

void Stream::record_step(bool recording) {
  if (!step_) step_ = Buffer(sizeof(uint64_t), device_allocator(place_));
  recording_ = recording;
  switch_streams();
}

void Stream::tell_step(uint64_t now) {
  fill<int64_t>(raw(), static_cast<int64_t>(now), reinterpret_cast<int64_t*>(step()), 1);
}

}  // namespace cuda

namespace built_in {

bool redraws_when_repeated(std::string_view op) {
  return op == "dropout";
}

}  // namespace built_in

}  // namespace fleet::fluid
