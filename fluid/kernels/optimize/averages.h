// What average_accumulates and lookahead check, on every device: positions of inputs and outputs.
// Each throws ProgramError that names the slot.
#pragma once

#include <array>

#include "fluid/kernels/functions/averages.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

struct InAndOut {
  int in = -1;
  int out = -1;
};

struct AverageSums {
  functions::AverageWindow window;
  int64_t n = 0;
  int param = -1;
  std::array<InAndOut, 3> sums;
  std::array<InAndOut, 3> counts;  // num_accumulates, old_num_accumulates, num_updates
};
AverageSums average_sums_of(PrepareContext& context, DType dtype);

struct LookaheadStep {
  double alpha = 0;
  int64_t k = 1;
  int64_t n = 0;
  InAndOut param;
  InAndOut slow;
  InAndOut step;
};
LookaheadStep lookahead_of(PrepareContext& context, DType dtype);

}  // namespace fleet::fluid
