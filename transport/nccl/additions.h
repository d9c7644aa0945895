// The shard tree's sum as a list of additions, for devices that carry it out element by element.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/shard_tree.h"

namespace fleet::transport {

// One addition. Operands are input arrays (>= 0) or what an earlier addition left in a slot
// (~slot). The last one leaves the sum.
struct Addition {
  int32_t left;
  int32_t right;
  int32_t slot;  // where the result goes
};

// Slots that any list needs at most.
constexpr int kAdditionSlots = 32;

// Of the arrays of these nodes, which make up a tree, in shard order; none for a single array.
// Throws UsageError when they do not.
std::vector<Addition> additions_of(std::span<const ShardRange> nodes);

}  // namespace fleet::transport
