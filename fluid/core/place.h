// Where a tensor lives and an op runs.
#pragma once

#include <string>

#include "base/strings.h"

namespace fleet::fluid {

enum class DeviceKind { kCpu, kCuda };

struct Place {
  DeviceKind kind = DeviceKind::kCpu;
  int device = 0;  // ordinal among the devices of its kind

  bool operator==(const Place&) const = default;
  bool is_cpu() const { return kind == DeviceKind::kCpu; }
  std::string to_string() const { return is_cpu() ? "cpu" : str_cat("cuda:", device); }
};

inline Place CPUPlace() {
  return {};
}
inline Place CUDAPlace(int device) {
  return {DeviceKind::kCuda, device};
}

}  // namespace fleet::fluid
