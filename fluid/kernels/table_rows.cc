#include "fluid/kernels/table_rows.h"

#include <algorithm>

#include "base/error.h"
#include "fluid/kernels/kernel_table.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

TableRows rows_looked_at(const Block& block, const Operator& op, std::span<Value* const> inputs,
                         uint64_t step, int shard) {
  std::vector<ValueSpec> specs;
  specs.reserve(inputs.size());
  for (const Value* value : inputs) specs.push_back(spec_of(*value));
  const auto kernels =
      kernel_table(block.program()).find(op.type, DeviceKind::kCpu, kernel_dtype(block, op, specs));
  const auto kernel = std::find_if(kernels.begin(), kernels.end(),
                                   [](const Kernel& each) { return each.table_rows != nullptr; });
  if (kernel == kernels.end()) {
    throw_error(
        ErrorCode::kInvalidProgram,
        {.what = "an op needs a whole weight that is on the servers",
         .where = op.to_string(),
         .expected = "an op with a kernel that says which rows it reads (Kernel::table_rows)",
         .got = op.type,
         .fix = "transpile the program with this release, or give the op's kernel table_rows"});
  }
  const PrepareContext context(block, op, specs, 0);
  Scratch scratch;
  KernelContext values(inputs, {}, scratch);
  values.set_step(step, shard);
  std::vector<int64_t> rows = kernel->table_rows(context, values);
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  const int table = context.input(schema_of(block.program(), op).table_slot);
  return {.table = *inputs[static_cast<size_t>(table)], .rows = std::move(rows)};
}

}  // namespace fleet::fluid
