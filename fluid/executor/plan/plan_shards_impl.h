// How a plan is cut into the logical shards of a step: passes over its ops, once they are all
// there.
#pragma once

#include "fluid/executor/plan/plan_impl.h"

namespace fleet::fluid {

// Whether an op of the shards' part writes variable i.
bool written_in_shard(const PlanData& plan, int i);

// Fills PlanData::per_shard: what shards make, once each, and the ops after them read.
void find_per_shard(PlanData& plan);
// Fills PlanData::statistics.
void find_statistics(PlanData& plan);
// Sets PlanData::shards_are_apart, when the fetches are known.
void find_whether_shards_are_apart(PlanData& plan);

}  // namespace fleet::fluid
