#include <algorithm>

#include "fluid/executor/plan/plan_compiler_impl.h"
#include "fluid/executor/plan/plan_impl.h"

namespace fleet::fluid {

int Plan::find_var(std::string_view name) const {
  const auto found = data_.index.find(name);
  return found == data_.index.end() ? -1 : found->second;
}

bool Plan::is_current() const {
  const Program& program = *data_.key.program;
  if (program.id() != data_.program_id || program.random_seed() != data_.seed) return false;
  if (program.op_library() != data_.op_library) return false;
  // A program that another was assigned to has other blocks.
  if (data_.key.block >= program.block_count() || &program.block(data_.key.block) != data_.block)
    return false;
  const auto& ops = data_.block->ops();
  if (ops.size() != data_.compiled_ops.size()) return false;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].version() != data_.compiled_ops[i]) return false;
  }
  return std::all_of(data_.ops.begin(), data_.ops.end(), [](const PlanOp& op) {
    return op.block == nullptr || op.block->is_current();
  });
}

std::shared_ptr<const Plan> Plan::compile(const PlanKey& key, const KernelTable& kernels,
                                          bool whole_step) {
  return PlanCompiler(key, kernels, whole_step).compile();
}

}  // namespace fleet::fluid
