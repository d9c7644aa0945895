// How variables are cut into slices of whole rows, and which server each slice goes to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/core/shape.h"

namespace fleet::transpiler {

struct RowSlice {
  fluid::Shape shape;
  int64_t offset = 0;  // in elements, from the start of the whole
};

// At most `parts` slices of about equal size, none smaller than min_block_size elements but the
// last: with N elements, parts' = min(parts, max(1, floor(N / min_block_size))) and slices of
// ceil(N / parts') elements, rounded up to whole rows. One slice for a shape without rows.
std::vector<RowSlice> slice_rows(const fluid::Shape& shape, int parts, int min_block_size);

// Deals slices to servers, in the order of the calls.
class Dispatcher {
 public:
  // `method` is "RoundRobin" or "HashName" (see DistributeTranspilerConfig), servers >= 1.
  Dispatcher(std::string_view method, int servers)
      : by_hash_(method == "HashName"), servers_(servers) {}

  // The index of the server that the slice of this name goes to.
  int next(std::string_view slice_name);

 private:
  bool by_hash_;
  int servers_;
  int turn_ = 0;
};

}  // namespace fleet::transpiler
