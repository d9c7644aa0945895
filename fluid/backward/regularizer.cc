#include "fluid/backward/regularizer.h"

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/penalty_ops.h"

namespace fleet::fluid {

namespace regularizer {

Penalty L2Decay(double coefficient) {
  return {.kind = "L2Decay", .values = {{"regularization_coeff", coefficient}}};
}
Penalty L1Decay(double coefficient) {
  return {.kind = "L1Decay", .values = {{"regularization_coeff", coefficient}}};
}

}  // namespace regularizer

void check_regularizer(const Penalty& penalty, const Variable& param) {
  if (penalty.kind == "L1Decay" || penalty.kind == "L2Decay") return;
  throw_error(ErrorCode::kUnknownName, {.what = "unknown regularizer",
                                        .where = "parameter '" + param.name() + "'",
                                        .expected = "L1Decay or L2Decay",
                                        .got = penalty.kind,
                                        .fix = "use regularizer::L2Decay or L1Decay"});
}

namespace {

using internal::append_simple;

// The variable that holds the decay of a parameter.
Variable append_decay(Block& block, const Variable& param, const Penalty& penalty) {
  check_regularizer(penalty, param);
  const AttributeMap scale = {{"scale", penalty.values.at("regularization_coeff")}};
  Variable decay =
      internal::make_var(block, unique_name::generate("_generated_var"), param.dtype());
  if (penalty.kind == "L2Decay") {
    append_simple(block, "scale", {{"X", {param.name()}}}, {{"Out", {decay.name()}}}, scale);
    return decay;
  }
  append_simple(block, "sign", {{"X", {param.name()}}}, {{"Out", {decay.name()}}});
  append_simple(block, "scale", {{"X", {decay.name()}}}, {{"Out", {decay.name()}}}, scale);
  return decay;
}

[[noreturn]] void throw_every_row(const Variable& table, const Penalty& penalty) {
  throw_error(ErrorCode::kNotSupported,
              {.what = "a regularizer would change every row of a growing table in every step",
               .where = "parameter '" + table.name() + "'",
               .expected = "a growing table without a regularizer",
               .got = penalty.kind,
               .fix = "give regularizers to the other parameters (ParamAttr::regularizer) instead "
                      "of to the optimizer"});
}

// What the sum of gradient and decay is written to: the gradient itself, or, since the decay of
// selected rows reaches every row, a dense variable beside it.
Variable sum_target(const Variable& param, const Variable& grad) {
  if (grad.desc().kind != VarKind::kSelectedRows) return grad;
  return internal::make_var(grad.block(), grad.name() + "@NEWGRAD@", param.dtype());
}

}  // namespace

std::vector<ParamGrad> append_regularization(const std::vector<ParamGrad>& pairs,
                                             const std::optional<Penalty>& common) {
  std::vector<ParamGrad> decayed;
  for (const auto& [param, grad] : pairs) {
    const OptionalPtr<Penalty>& own = param.desc().regularizer;
    const Penalty* penalty = own ? &*own : common ? &*common : nullptr;
    if (penalty == nullptr) {
      decayed.push_back({param, grad});
      continue;
    }
    if (param.desc().kind == VarKind::kGrowingTable) throw_every_row(param, *penalty);
    const RoleGuard role(param.program(), OpRole::kOptimize, {param.name(), grad.name()});
    const NameScopeGuard scope(param.program(), "regularization");
    const Variable decay = append_decay(grad.block(), param, *penalty);
    const Variable target = sum_target(param, grad);
    append_simple(grad.block(), "sum", {{"X", {grad.name(), decay.name()}}},
                  {{"Out", {target.name()}}});
    target.edit().shape = param.shape();
    decayed.push_back({param, target});
  }
  return decayed;
}

}  // namespace fleet::fluid
