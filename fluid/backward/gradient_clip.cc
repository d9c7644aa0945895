#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/penalty_ops.h"
#include "fluid/backward/regularizer.h"
#include "fluid/ops/fill.h"
#include "fluid/ops/reduce.h"
#include "fluid/ops/scale.h"

namespace fleet::fluid {

namespace clip {

Penalty GradientClipByValue(double max, double min) {
  return {.kind = "ClipByValue", .values = {{"max", max}, {"min", min}}};
}
Penalty GradientClipByNorm(double clip_norm) {
  return {.kind = "ClipByNorm", .values = {{"clip_norm", clip_norm}}};
}
Penalty GradientClipByGlobalNorm(double clip_norm) {
  return {.kind = "ClipByGlobalNorm", .values = {{"clip_norm", clip_norm}}};
}

}  // namespace clip

namespace {

using internal::append_simple;
using internal::make_result;

// out = type(inputs), a new variable named as the layer would name it.
Variable append_new(Block& block, const std::string& type, SlotMap inputs, DType dtype,
                    AttributeMap attrs = {}) {
  Variable out = make_result(block, type, dtype);
  append_simple(block, type, std::move(inputs), {{"Out", {out.name()}}}, std::move(attrs));
  return out;
}

Variable append_one_clip(const Variable& grad, const Penalty& clip) {
  Block& block = grad.block();
  if (clip.kind == "ClipByValue") {
    const ClipAttrs attrs{.min = static_cast<float>(clip.values.at("min")),
                          .max = static_cast<float>(clip.values.at("max"))};
    return append_new(block, "clip", {{"X", {grad.name()}}}, grad.dtype(), to_attributes(attrs));
  }
  const ClipByNormAttrs attrs{.max_norm = static_cast<float>(clip.values.at("clip_norm"))};
  return append_new(block, "clip_by_norm", {{"X", {grad.name()}}}, grad.dtype(),
                    to_attributes(attrs));
}

// clip_norm / max(norm over all, clip_norm).
Variable append_global_factor(const std::vector<ParamGrad>& pairs, double clip_norm) {
  Program& program = pairs.front().param.program();
  std::vector<std::string> squares;
  for (const auto& [param, grad] : pairs) {
    const RoleGuard role(program, OpRole::kOptimize, {param.name(), grad.name()});
    Block& block = grad.block();
    const Variable square = append_new(block, "square", {{"X", {grad.name()}}}, grad.dtype());
    const Variable sum = append_new(block, "reduce_sum", {{"X", {square.name()}}}, grad.dtype(),
                                    to_attributes(ReduceAttrs{.reduce_all = true}));
    squares.push_back(sum.name());
  }
  const auto& [param, grad] = pairs.back();
  const RoleGuard role(program, OpRole::kOptimize, {param.name(), grad.name()});
  Block& block = grad.block();
  const DType dtype = grad.dtype();
  const Variable sum = append_new(block, "sum", {{"X", squares}}, dtype);
  const Variable norm = append_new(block, "sqrt", {{"X", {sum.name()}}}, dtype);
  const FillConstantAttrs fill{.shape = {1},
                               .dtype = dtype,
                               .value = static_cast<float>(clip_norm),
                               .str_value = float_text(clip_norm)};
  const Variable limit = append_new(block, "fill_constant", {}, dtype, to_attributes(fill));
  limit.set_stop_gradient(true);
  const Variable largest =
      append_new(block, "elementwise_max", {{"X", {limit.name()}}, {"Y", {norm.name()}}}, dtype);
  return append_new(block, "elementwise_div", {{"X", {limit.name()}}, {"Y", {largest.name()}}},
                    dtype);
}

// The clip's ops belong to the clipped gradients.
void retag(Block& block, size_t first_op, const std::vector<ParamGrad>& clipped) {
  std::map<std::string, std::string> grads;
  for (const auto& [param, grad] : clipped) grads[param.name()] = grad.name();
  for (size_t i = first_op; i < block.op_count(); ++i) {
    auto& role_var = block.op(i).role_var;
    if (!role_var.empty()) role_var = {role_var[0], grads.at(role_var[0])};
  }
}

}  // namespace

std::vector<ParamGrad> append_gradient_clip(const std::vector<ParamGrad>& pairs,
                                            const Penalty& clip) {
  if (pairs.empty()) return {};
  const bool global = clip.kind == "ClipByGlobalNorm";
  if (!global && clip.kind != "ClipByValue" && clip.kind != "ClipByNorm") {
    throw_error(ErrorCode::kUnknownName,
                {.what = "unknown gradient clip",
                 .where = "append_gradient_clip",
                 .expected = "ClipByValue, ClipByNorm or ClipByGlobalNorm",
                 .got = clip.kind,
                 .fix = "use clip::GradientClipByValue, ByNorm or ByGlobalNorm"});
  }
  Block& block = pairs.front().grad.block();
  Program& program = block.program();
  const NameScopeGuard scope(program, "gradient_clip");
  const size_t first_op = block.op_count();
  Variable factor;
  if (global) factor = append_global_factor(pairs, clip.values.at("clip_norm"));
  std::vector<ParamGrad> clipped;
  for (const auto& [param, grad] : pairs) {
    const RoleGuard role(program, OpRole::kOptimize, {param.name(), grad.name()});
    if (global) {
      const SlotMap inputs = {{"X", {grad.name()}}, {"Y", {factor.name()}}};
      clipped.push_back({param, append_new(block, "elementwise_mul", inputs, grad.dtype())});
    } else {
      clipped.push_back({param, append_one_clip(grad, clip)});
    }
  }
  retag(block, first_op, clipped);
  return clipped;
}

}  // namespace fleet::fluid
