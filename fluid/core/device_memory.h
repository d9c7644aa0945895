// The seam to the memory of devices.
#pragma once

#include <cstddef>

#include "base/buffer.h"
#include "fluid/core/place.h"

namespace fleet::fluid {

// Memory of a device; throws Error (not supported) when this build or this machine does not have
// it. Memory is given back in the order of the device's work: whatever was started before still has
// it.
Allocator& device_allocator(const Place& place);

// Devices that this build and this machine have.
int device_count();

// Copies between two places, one of them at least a device, after the work that was started on
// the devices; waits for a copy to or from the host. The ranges must not overlap.
void copy_device_memory(void* to, const Place& to_place, const void* from, const Place& from_place,
                        size_t bytes);

// Stands in for devices where a process has none: memory of a host that programs are placed on as
// on devices. Its work is done when a call returns, so it has no streams.
class EmulatedDevices {
 public:
  virtual ~EmulatedDevices() = default;
  // As the functions above.
  virtual int count() const = 0;
  virtual Allocator& allocator(const Place& place) = 0;
  virtual void copy(void* to, const Place& to_place, const void* from, const Place& from_place,
                    size_t bytes) = 0;
};

// What the process has instead of the devices of its build; null: nothing. Set before the first
// tensor on a device is made, and must outlive the last one.
void emulate_devices(EmulatedDevices* devices);
EmulatedDevices* emulated_devices();

}  // namespace fleet::fluid
