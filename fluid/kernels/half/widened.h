// Ops of float16 and bfloat16 by kernels of float32: inputs are widened, outputs rounded.
#pragma once

#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid {

// A kernel for dense tensors of 16-bit types where `kernel` is one for float32. What that makes as
// float32 has the type that the program says, if it is a 16-bit one.
Kernel widened(const Kernel& kernel);

// Lists a kernel for a 16-bit type, and behind it, for what it does not take, one for float32.
void add_half(KernelTable& table, std::string_view op, DeviceKind device, DType half, Kernel own,
              const Kernel& of_float32);

// `own` of 16-bit types, and the one for float32 where it does not take an op: it prepares nothing,
// makes other types than the program says, or throws kNotSupported when it runs first. Both are
// prepared.
Kernel or_widened(Kernel own, const Kernel& of_float32);

// Lists op cast of 16-bit types: to float32 in one pass, to others by a kernel for float32.
void add_casts_of_halves(KernelTable& table, DeviceKind device, const Kernel& from_float32);

}  // namespace fleet::fluid
