// What ops that look at a few rows of a large weight will look at, so that whoever keeps the weight
// elsewhere can fetch those rows alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fluid/core/value.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

struct TableRows {
  Value& table;               // the op's weight
  std::vector<int64_t> rows;  // strictly ascending
};

// What the op looks at in this step and shard. `inputs` are its values, slot by slot in the order
// of slot names; of the weight only type and shape are taken. Throws ProgramError for an op without
// a kernel that says it (Kernel::table_rows), UsageError for a label outside of the weight.
TableRows rows_looked_at(const Block& block, const Operator& op, std::span<Value* const> inputs,
                         uint64_t step, int shard);

}  // namespace fleet::fluid
