// Lookups, where the release makes one op of several, stops at their ids, or takes the values of a
// table away.
#pragma once

#include <nlohmann/json.hpp>

namespace fleet::golden {

bool different_paddings_of_a_table(const nlohmann::json& golden);
bool looks_ids_of_rank_1_up(const nlohmann::json& golden);

// A table that is not trained: a sparse one has no values on the release's trainers.
bool looks_a_frozen_table_up(const nlohmann::json& golden);

// One op for each padding of what the file has in one; where ids are of rank 1, the release's error
// for them, and no other, is dropped.
void expect_local_lookups(nlohmann::json& golden);

}  // namespace fleet::golden
