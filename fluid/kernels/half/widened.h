// Ops of float16 and bfloat16 by kernels of float32: inputs are widened, outputs rounded.
#pragma once

#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid {

// A kernel for dense tensors of 16-bit types where `kernel` is one for float32. What that makes as
// float32 has the type that the program says, if it is a 16-bit one.
Kernel widened(const Kernel& kernel);

// Lists op cast of 16-bit types: to float32 in one pass, to others by a kernel for float32.
void add_casts_of_halves(KernelTable& table, DeviceKind device, const Kernel& from_float32);

}  // namespace fleet::fluid
