// Sums of row gradients that many contributors made.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/process/tile_pool.h"

namespace fleet::fluid::tables {

// What one contributor made: ids in any order, and their values, [ids, width].
struct ContributedRows {
  std::span<const uint64_t> keys;
  const float* values = nullptr;
};

// The sums, ascending by id. Reusing one keeps its memory.
struct MergedRows {
  std::vector<uint64_t> keys;
  Buffer memory;  // of the values, and maybe more

  const float* values() const { return reinterpret_cast<const float*>(memory.data()); }
};

// Sums the rows of each id in the order of the tree over the contributors (base/shard_tree.h), with
// the bits that the tree gives when a contributor that lacks the row counts as +0.0 everywhere. The
// cost is that of the rows that are there: what a contributor lacks is left out, and if any lacks
// the row, +0.0 is added to its sum once. That gives the same bits: x + 0.0 differs from x for -0.0
// only, and a sum to which +0.0 was added somewhere is never -0.0.
//
// Rows of one contributor with the same id are summed first, in their order. Any thread; the bits
// do not depend on `tiles`. Throws UsageError when there are no contributors or more than 65536, or
// more than 2^32 - 1 rows of one.
void merge_rows(std::span<const ContributedRows> contributors, size_t width, MergedRows& out,
                Tiles tiles = {});

}  // namespace fleet::fluid::tables
