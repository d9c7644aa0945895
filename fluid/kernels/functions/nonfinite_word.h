// What a device says of a value that is not finite, in a word of host memory.
#pragma once

#include <cstdint>

#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid {

// 1 NaN, 2 infinity, 3 minus infinity. T: float or double.
template <class T>
FLEET_HOST_DEVICE uint32_t word_of_nonfinite(T value) {
  if (value != value) return 1;  // NOLINT(misc-redundant-expression): NaN
  return value > T{0} ? 2 : 3;
}

}  // namespace fleet::fluid
