// Kernels of distributed tables (fluid/ops/distributed/table_ops.h).
#pragma once

#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid::cpu {

void register_table_ops(KernelTable& table);

}  // namespace fleet::fluid::cpu
