// Which ops have kernels on devices in a build with CUDA and cuDNN, by name, in every build: so
// that where the ops of a program would run is known without such a build and without a device.
#pragma once

#include <span>
#include <string_view>

#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid {

struct ListedKernels {
  std::string_view op;
  std::string_view dtypes;  // names of types with spaces between them, in the order of DType
  // "rows" for kernels that take selected rows (Kernel::takes_rows), with the slots that come in
  // host memory behind it.
  std::string_view rows = {};
};
// In the order of the ops' names. Tests hold them against what a build with CUDA registers.
std::span<const ListedKernels> listed_device_kernels();

// For OpPlaces and plans, not to run: the standard kernels, with those of this build's devices or,
// in builds without, a kernel for each that is listed, which throws when it is prepared.
KernelTable kernels_to_place_ops();

}  // namespace fleet::fluid
