// Two devices in host memory, and kernels for them, so that programs on devices are tested on
// machines without any. Their memory can be touched only by their kernels and by copies: whoever
// else reads or writes it gets a segmentation fault.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fluid/kernels/kernel_table.h"

namespace fleet::testing {

// From now on, for the life of the process. May be called again.
void emulate_two_devices();

// The kernels of this library for the CPU, and for the ops that `chosen` accepts the same again,
// for devices.
fluid::KernelTable kernels_with_device_ops(
    const std::function<bool(const std::string& op)>& chosen);

// While it lives, any thread may touch the devices' memory: what a device's own threads hold.
class DeviceAccess {
 public:
  DeviceAccess();
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
};

// Bytes that the devices have left to give, from now on, whatever was given before.
void limit_device_memory(size_t bytes);

// Kernels that have run on devices, and bytes copied to or from them, since the process began.
uint64_t device_kernels_run();
uint64_t device_bytes_copied();
// Copies to the host that were under way while their process did something else.
uint64_t late_copies();
// After so many looks, from now on, they are there; 0: the number differs from copy to copy.
void delay_late_copies(int looks);

}  // namespace fleet::testing
