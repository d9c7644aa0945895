#include "fluid/core/device_memory.h"

#include <atomic>

#include "fluid/core/device_memory_impl.h"

namespace fleet::fluid {
namespace {

std::atomic<EmulatedDevices*> g_emulated = nullptr;

}  // namespace

void emulate_devices(EmulatedDevices* devices) {
  g_emulated = devices;
}

EmulatedDevices* emulated_devices() {
  return g_emulated;
}

int device_count() {
  const EmulatedDevices* emulated = emulated_devices();
  return emulated != nullptr ? emulated->count() : built_in::device_count();
}

Allocator& device_allocator(const Place& place) {
  if (EmulatedDevices* emulated = emulated_devices()) return emulated->allocator(place);
  return built_in::device_allocator(place);
}

void copy_device_memory(void* to, const Place& to_place, const void* from, const Place& from_place,
                        size_t bytes) {
  if (EmulatedDevices* emulated = emulated_devices()) {
    return emulated->copy(to, to_place, from, from_place, bytes);
  }
  built_in::copy_device_memory(to, to_place, from, from_place, bytes);
}

}  // namespace fleet::fluid
