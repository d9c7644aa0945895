// Which slices have the rows of their origin in turns: distributed tables, row r of which is on
// server r modulo the servers.
#pragma once

#include <cstdint>

#include "fluid/program/program.h"

namespace fleet::fluid {

// DistributedVar::vtype of such tables. State of a table's shape follows it, and is not listed.
inline constexpr const char* kDistributedTable = "DistributedTable";

// How many rows of the origin lie from one row of the variable to its next: 1, or the number of
// servers. Above 1 the variable may have rows behind the origin's last one.
int64_t row_stride(const Program& program, const VarDesc& var);

}  // namespace fleet::fluid
