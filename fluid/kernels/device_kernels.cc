#include "fluid/kernels/device_kernels.h"

#include <vector>

#include "fluid/core/device_memory.h"
#include "fluid/core/nonfinite.h"
#include "fluid/kernels/device_kernels_impl.h"
#include "fluid/kernels/functions/nonfinite_word.h"

namespace fleet::fluid {
namespace {

// On the CPU, and on emulated devices, work is done when a call returns.
bool has_streams(const Place& place) {
  return !place.is_cpu() && emulated_devices() == nullptr;
}

}  // namespace

void check_place(const Place& place) {
  if (place.is_cpu()) return;
  if (EmulatedDevices* emulated = emulated_devices()) {
    emulated->allocator(place);
  } else {
    built_in::check_place(place);
  }
}

void enter_place(const Place& place) {
  if (has_streams(place)) built_in::enter_place(place);
}

void* create_stream(const Place& place) {
  return has_streams(place) ? built_in::create_stream(place) : nullptr;
}

void destroy_stream(const Place& place, void* stream) noexcept {
  if (stream != nullptr) built_in::destroy_stream(place, stream);
}

void synchronize_stream(const Place& place, void* stream) {
  if (stream != nullptr) built_in::synchronize_stream(place, stream);
}

bool begin_recording(const Place& place, void* stream) {
  return stream != nullptr && built_in::begin_recording(place, stream);
}

std::shared_ptr<void> end_recording(const Place& place, void* stream) {
  return stream == nullptr ? nullptr : built_in::end_recording(place, stream);
}

void run_recorded(const Place& place, void* recorded, void* stream, uint64_t step) {
  built_in::run_recorded(place, recorded, stream, step);
}

bool redraws_when_repeated(std::string_view op) {
  return built_in::redraws_when_repeated(op);
}

std::shared_ptr<uint32_t> make_shared_words(const Place& place, size_t count) {
  if (has_streams(place)) return built_in::make_shared_words(place, count);
  const auto words = std::make_shared<std::vector<uint32_t>>(count);
  return {words, words->data()};
}

void note_nonfinite_on_device(const Tensor& tensor, uint32_t* word, void* stream) {
  if (stream != nullptr) return built_in::note_nonfinite(tensor, word, stream);
  if (const auto found = first_nonfinite(tensor)) *word = word_of_nonfinite(*found);
}

}  // namespace fleet::fluid
