#include "base/error.h"
#include "fluid/kernels/device_kernels_impl.h"

namespace fleet::fluid {

void register_device_kernels(KernelTable&) {}

void convert_half_on_device(const Tensor&, Tensor&, void*) {}

namespace built_in {

void check_place(const Place& place) {
  throw_error(ErrorCode::kNotSupported, {.what = "this build has no CUDA kernels",
                                         .where = "place " + place.to_string(),
                                         .expected = "cpu",
                                         .got = place.to_string(),
                                         .fix = "build with the preset cuda, or use CPUPlace()"});
}

void enter_place(const Place&) {}

void* create_stream(const Place&) {
  return nullptr;
}

void destroy_stream(const Place&, void*) noexcept {}

void synchronize_stream(const Place&, void*) {}

bool begin_recording(const Place&, void*) {
  return false;
}

std::shared_ptr<void> end_recording(const Place&, void*) {
  return nullptr;
}

void run_recorded(const Place&, void*, void*, uint64_t) {}

bool redraws_when_repeated(std::string_view) {
  return false;
}

std::shared_ptr<uint32_t> make_shared_words(const Place&, size_t) {
  return nullptr;
}

void note_nonfinite(const Tensor&, uint32_t*, void*) {}

}  // namespace built_in

}  // namespace fleet::fluid
