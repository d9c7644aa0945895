// Lookups, where the release makes one op of several, stops at their ids, or takes the values of a
// table away.
#pragma once

#include <nlohmann/json.hpp>

namespace fleet::golden {

// By their padding, or by their op type.
bool different_lookups_of_a_table(const nlohmann::json& golden);
bool looks_ids_of_rank_1_up(const nlohmann::json& golden);

// A table that is not trained: a sparse one has no values on the release's trainers.
bool looks_a_frozen_table_up(const nlohmann::json& golden);

// A table with lookups of which some are sparse, and a dense gradient: it is received, but has no
// values on the release's trainers in the first step.
bool looks_a_dense_table_up_sparsely(const nlohmann::json& golden);

// One op for each padding and op type of what the file has in one or left on the trainer; where ids
// are of rank 1, the release's error for them, and no other, is dropped.
void expect_local_lookups(nlohmann::json& golden);

}  // namespace fleet::golden
