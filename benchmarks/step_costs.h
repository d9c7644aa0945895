// The rule that keeps hand-written peers honest: their step is at most a tenth slower than ours.
#pragma once

#include "benchmarks/harness/row.h"

namespace fleet::benchmarks {

// Measures a local step of the quick start's net on both sides, in turns and by processor time,
// writes both into the row's note, and marks the row invalid where the hand-written one is slow.
void compare_steps(Row& row, int rows);

}  // namespace fleet::benchmarks
