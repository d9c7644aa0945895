// What op expand repeats.
#pragma once

#include "fluid/kernels/kernel.h"
#include "fluid/kernels/shape/mover.h"

namespace fleet::fluid {

// From X to Out: a dimension of repetitions outside each dimension.
struct Expansion {
  StridedWalk forward;
  StridedWalk back;
  Shape out;
};
// Throws ProgramError where expand_times does not fit X.
Expansion expansion_of(const PrepareContext& context);

}  // namespace fleet::fluid
