// Selected rows that the logical shards of a step made.
#pragma once

#include <span>

#include "fluid/core/value.h"

namespace fleet::fluid {

// Their mean over all shards, row by row in the order of base/shard_tree.h, a shard without a row
// counting as zeros: the values that the dense gradients' mean has in these rows. Rows rise, each
// occurs once. float32 and float64.
SelectedRows mean_of_rows(std::span<const SelectedRows> shards);

}  // namespace fleet::fluid
