// For tests of CUDA kernels: what needs a device is skipped where there is none, with the reason.
#pragma once

#include <gtest/gtest.h>
#include <string>

#include "base/error.h"
#include "fluid/kernels/device_kernels.h"

namespace fleet::fluid {

// Empty when there is a device.
inline std::string why_no_device() {
  try {
    check_place(CUDAPlace(0));
    return {};
  } catch (const Error& error) {
    return error.text().what;
  }
}

#define SKIP_WITHOUT_DEVICE() \
  if (const std::string why = why_no_device(); !why.empty()) GTEST_SKIP() << why

}  // namespace fleet::fluid
