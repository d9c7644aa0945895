// Where the variables of a plan lie: buffers that several share, and images in blocks of channels.
#pragma once

#include "fluid/executor/plan/plan_impl.h"

namespace fleet::fluid {

// Fills PlanVar::buffer, PlanVar::may_block and PlanData::buffer_count of a plan whose ops and
// fetches are known.
void plan_buffers(PlanData& plan);

}  // namespace fleet::fluid
