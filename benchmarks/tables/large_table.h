// A table of many rows in one process: what it takes of memory.
#pragma once

#include <cstdint>

#include "benchmarks/harness/harness.h"

namespace fleet::benchmarks {

// Makes, looks up and updates so many rows of 8 floats. What is resident then, against the bytes
// that the table says it uses. `full`: only with --full.
Row large_table(const Rounds& rounds, uint64_t table_rows, bool full);

}  // namespace fleet::benchmarks
