// How fed tensors are cut into the logical shards of a step, and what shards made is joined again:
// by rows, or, where rows belong to sequences, by outermost sequences.
#pragma once

#include <cstdint>
#include <vector>

#include "fluid/core/tensor.h"

namespace fleet::fluid {

// What every shard gets an equal number of: rows, or outermost sequences.
int64_t samples_of(const Tensor& fed);

// Part `part` of `parts` equal ones, in the same memory. The samples must divide.
Tensor part_of_feed(const Tensor& fed, int part, int parts);

// The parts' rows one after the other; their sequences too, when all have as many levels.
Tensor join_rows(const std::vector<Tensor>& parts);

}  // namespace fleet::fluid
