#include "fluid/ops/optimize/loss_scaling.h"

#include <algorithm>

namespace fleet::fluid {
namespace {

// What the loss is multiplied by; empty when it is not.
std::string factor_of(const Operator& op, const Block& block) {
  if (op.role != (OpRole::kForward | OpRole::kLoss) || op.type != "elementwise_mul") return {};
  const std::string& factor = op.input("Y").front();
  const VarDesc* var = block.find_var(factor);
  return var != nullptr && var->persistable && !var->is_parameter ? factor : std::string();
}

bool writes(const Operator& op, const std::string& name) {
  const auto outputs = op.output_names();
  return std::find(outputs.begin(), outputs.end(), name) != outputs.end();
}

}  // namespace

std::optional<DynamicLossScaling> find_dynamic_loss_scaling(const Block& block) {
  DynamicLossScaling found;
  for (const auto& op : block.ops()) {
    if (found.factor.empty()) found.factor = factor_of(*op, block);
    if (found.factor.empty() || !has_role(op->role, OpRole::kOptimize)) continue;
    if (op->type == "isfinite" && found.finite.empty()) {
      found.gradients = op->input("X").front();
      found.finite = op->output("Out").front();
    }
    const bool decides = op->type == "conditional_block" && writes(*op, found.factor);
    if (!decides || found.finite.empty() || op->input("Cond").front() == found.finite) continue;
    found.shrinks = op.get();
    return found;
  }
  return std::nullopt;
}

}  // namespace fleet::fluid
