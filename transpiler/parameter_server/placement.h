// How variables are cut into slices of whole rows, and which server each slice goes to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fluid/core/shape.h"
#include "transpiler/split_method.h"

namespace fleet::transpiler {

struct RowSlice {
  fluid::Shape shape;
  int64_t offset = 0;  // in elements, from the start of the whole
};

// At most `parts` slices of about equal size, none smaller than min_block_size elements but the
// last: with N elements, parts' = min(parts, max(1, floor(N / min_block_size))) and slices of
// ceil(N / parts') elements, rounded up to whole rows. One slice for a shape without rows.
std::vector<RowSlice> slice_rows(const fluid::Shape& shape, int parts, int min_block_size);

// Moves the cuts of one variable so that what its slices' servers have comes out even: `loads` is
// what the server of each slice has besides, in the unit of `row`, the load of one row. Returns the
// rows of each slice; their sum is `rows`. As with slice_rows none but the smallest has fewer than
// `least` rows, unless there are no rows for that; each has one at least.
std::vector<int64_t> level_rows(std::span<const int64_t> loads, int64_t row, int64_t rows,
                                int64_t least);

// The servers of the parts by this method. Throws UsageError for a method of one's own that gives
// another number of positions, or one that is outside.
std::vector<int> dispatch(const SplitMethod& method, std::span<const ServerPart> parts,
                          std::span<const std::string> servers);

}  // namespace fleet::transpiler
