#include "fluid/kernels/table_rows.h"

#include <algorithm>

#include "base/error.h"
#include "fluid/kernels/cpu/nn/class_rows.h"
#include "fluid/kernels/kernel.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

TableRows rows_looked_at(const Block& block, const Operator& op, std::span<Value* const> inputs,
                         uint64_t step, int shard) {
  const bool samples = op.type == "nce";
  if (!samples && op.type != "hierarchical_sigmoid") {
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "an op that takes a whole weight has it on servers",
                 .where = op.to_string(),
                 .expected = "table_names on nce or hierarchical_sigmoid only",
                 .got = op.type,
                 .fix = "transpile the program with this release"});
  }
  std::vector<ValueSpec> specs;
  specs.reserve(inputs.size());
  for (const Value* value : inputs) specs.push_back(spec_of(*value));
  const PrepareContext context(block, op, specs, 0);
  Scratch scratch;
  KernelContext values(inputs, {}, scratch);
  values.set_step(step, shard);
  std::vector<int64_t> rows =
      samples ? cpu::classes_of_nce(context, values) : cpu::nodes_of_paths(context, values);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  const int table = context.input(schema_of(block.program(), op).table_slot);
  return {.table = *inputs[static_cast<size_t>(table)], .rows = std::move(rows)};
}

}  // namespace fleet::fluid
