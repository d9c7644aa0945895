// Selected rows that the logical shards of a step made.
#pragma once

#include <span>

#include "fluid/core/value.h"

namespace fleet::fluid {

// Their sum over shards that make up a node of the tree of base/shard_tree.h, row by row in its
// order, a shard without a row counting as zeros: the values that the dense gradients' sum has in
// these rows. Equal rows of a shard are added in the order in which they occur; the sum's rows
// are strictly ascending. float32 and float64. Throws ProgramError for a row outside the height.
SelectedRows sum_of_rows(std::span<const SelectedRows> shards);

// The sum, divided by the number of shards.
SelectedRows mean_of_rows(std::span<const SelectedRows> shards);

}  // namespace fleet::fluid
