// The seam to the memory of devices.
#pragma once

#include <cstddef>
#include <memory>

#include "base/buffer.h"
#include "fluid/core/place.h"

namespace fleet::fluid {

// Memory of a device; throws Error (not supported) when this build or this machine does not have
// it. Memory is given back in the order of the device's work: whatever was started before still has
// it.
Allocator& device_allocator(const Place& place);

// Devices that this build and this machine have.
int device_count();

// The stream of a device that its work is put on, by all threads of the process: kernels, copies,
// memory that is taken and given back. Null where work is done when a call returns.
void* work_stream(const Place& place);

// Copies between two places, one of them at least a device, after the work that was started on
// the devices. When it returns, a copy to the host is done, and memory of the host has been read.
// The ranges must not overlap.
void copy_device_memory(void* to, const Place& to_place, const void* from, const Place& from_place,
                        size_t bytes);

// Copies what is fed to a device while the device still works on what was started before. Used by
// one thread; for one variable of one workspace.
class FeedCopier {
 public:
  virtual ~FeedCopier() = default;
  // When it returns, memory of the host has been read; what is put on the device next finds the
  // bytes there. Waits for the copy before the last one.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
};
std::unique_ptr<FeedCopier> make_feed_copier(const Place& place);
// One that takes no memory of the device: its copies are part of the device's work.
std::unique_ptr<FeedCopier> make_value_copier(const Place& place);

// Copies what a device has made to the host, while the device works on. Used by one thread; for one
// variable of one workspace.
class HostCopier {
 public:
  virtual ~HostCopier() = default;
  // Begins to copy what the work before it wrote. What is put on the device next may overwrite it.
  // The copy before must be done; its bytes may be overwritten from now on.
  virtual void start(const void* from, size_t bytes) = 0;
  virtual bool done() = 0;
  virtual void wait() = 0;
  // Where the bytes are when it is done: in host memory that the device reaches by itself, where
  // there is some.
  virtual const Buffer& bytes() const = 0;
};
std::unique_ptr<HostCopier> make_host_copier(const Place& place);

// A point of a device's work: all that was put on it before.
class DevicePoint {
 public:
  virtual ~DevicePoint() = default;
  // Waits until the work before it is done.
  virtual void wait() = 0;
  // Copies to the host what the work before it wrote, beside work that was started later.
  virtual void copy_to_host(void* to, const void* from, size_t bytes) = 0;
};
std::unique_ptr<DevicePoint> mark_device(const Place& place);

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
  virtual std::unique_ptr<HostCopier> host_copier(const Place& place) = 0;
};

// What the process has instead of the devices of its build; null: nothing. Set before the first
// tensor on a device is made, and must outlive the last one.
void emulate_devices(EmulatedDevices* devices);
EmulatedDevices* emulated_devices();

}  // namespace fleet::fluid
