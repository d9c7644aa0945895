// Rows of a growing table that a worker has, and need not ask servers for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace fleet::strategies {

class KeptRows {
 public:
  virtual ~KeptRows() = default;

  // Of ids, which differ: whether each has a row to use at `step`, which `values` gets then, at the
  // id's place; [ids, width].
  virtual std::vector<bool> find(std::span<const uint64_t> ids, uint64_t step, float* values) = 0;
  // Rows of other ids that servers sent at `step`; `values` gets what the lookup reads.
  virtual void keep(std::span<const uint64_t> ids, uint64_t step, float* values) = 0;
};

}  // namespace fleet::strategies
