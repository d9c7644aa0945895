// Ops of a plan that follow each other and touch nothing of each other.
#pragma once

#include "fluid/executor/plan/plan_impl.h"

namespace fleet::fluid {

// Sets PlanOp::with_next of ops of one type in a row that a device may do as one: updates, and what
// clips and loss scaling do to each gradient before.
void join_rows(PlanData& plan);

// Sets PlanOp::beside and before of lookups, their gradients and updates in a row, which threads
// may share: nets have such an op for each of many slots or parameters. Behind the buffers'
// planning.
void find_side_by_side(PlanData& plan);

}  // namespace fleet::fluid
