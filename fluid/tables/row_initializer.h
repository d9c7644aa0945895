// Numbers that a table draws for an id: what its row starts from, and whether it gets one.
#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"
#include "fluid/tables/table_options.h"

namespace fleet::fluid::tables {

// Immutable. All 64 bits of an id are the stream of a counter-based generator whose key is made of
// the table's seed and name; the index of an element is its counter.
class RowDraws {
 public:
  explicit RowDraws(const TableOptions& options);

  // The values that the row of an id starts from.
  void fill(uint64_t id, std::span<float> values) const;
  // Of Admission::Kind::kProbability.
  bool admits(uint64_t id) const;

 private:
  RowInitializer initializer_;
  double probability_;
  RandomKey values_;
  RandomKey admission_;
};

}  // namespace fleet::fluid::tables
