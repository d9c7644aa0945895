// Which ops of a plan may put their work on a device as one.
#pragma once

#include "fluid/executor/plan/plan_impl.h"

namespace fleet::fluid {

// Sets PlanOp::with_next of updates in a row.
void join_updates(PlanData& plan);

}  // namespace fleet::fluid
