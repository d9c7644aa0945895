#include "fluid/backward/gradient_clip.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/penalty_ops.h"
#include "fluid/ops/math/reduce.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/shape/fill.h"

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

namespace {

void check_kind(const Penalty& clip, const char* where) {
  if (clip.kind == "ClipByValue" || clip.kind == "ClipByNorm") return;
  if (clip.kind == "ClipByGlobalNorm") return;
  throw_error(ErrorCode::kUnknownName,
              {.what = "unknown gradient clip",
               .where = where,
               .expected = "ClipByValue, ClipByNorm or ClipByGlobalNorm",
               .got = clip.kind,
               .fix = "use clip::GradientClipByValue, ByNorm or ByGlobalNorm"});
}

bool is_updated(const Block& block, const std::string& param) {
  return std::any_of(block.ops().begin(), block.ops().end(), [&param](const auto& op) {
    const auto& updated = op->input("Param");
    return has_role(op->role, OpRole::kOptimize) && !updated.empty() && updated.front() == param;
  });
}

void note_clip(const Penalty& clip, Block& block, const std::string& name) {
  const VarDesc& var = std::as_const(block).var(name);
  const std::string where = "set_gradient_clip, param_list";
  if (!var.is_parameter) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a gradient clip is for parameters",
                 .where = where,
                 .expected = "names of parameters, or the parameters",
                 .got = "'" + name + "', which is none",
                 .fix = "set_error_clip clips gradients of what layers compute"});
  }
  if (is_updated(block, name)) {
    throw_error(ErrorCode::kPrecondition,
                {.what = "this parameter has its update already, which does not clip",
                 .where = where,
                 .expected = "a call before minimize",
                 .got = "'" + name + "' after minimize",
                 .fix = "call set_gradient_clip first"});
  }
  block.edit_var(name).gradient_clip = clip;
}

}  // namespace

void set_gradient_clip(const Penalty& clip, Program& program,
                       const std::optional<std::vector<std::string>>& parameter_list) {
  check_kind(clip, "set_gradient_clip");
  Block& block = program.global_block();
  if (!parameter_list) {
    for (const VarDesc* param : block.parameters()) note_clip(clip, block, param->name);
    return;
  }
  for (const std::string& name : *parameter_list) note_clip(clip, block, name);
}

void set_gradient_clip(const Penalty& clip, std::initializer_list<ClippedParam> param_list) {
  for (const ClippedParam& param : param_list) {
    if (param.name.empty()) {
      set_gradient_clip(clip, std::vector{param.variable});
    } else {
      set_gradient_clip(clip, std::vector{param.name});
    }
  }
}

void set_gradient_clip(const Penalty& clip, const std::vector<std::string>& param_list,
                       Program& program) {
  set_gradient_clip(clip, program, param_list);
}

void set_gradient_clip(const Penalty& clip, const std::vector<Variable>& param_list) {
  for (const Variable& param : param_list) {
    if (!param) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "a gradient clip is for parameters",
                                                .where = "set_gradient_clip, param_list",
                                                .expected = "parameters of a program",
                                                .got = "Variable()",
                                                .fix = "leave it out"});
    }
    set_gradient_clip(clip, param.program(), std::vector{param.name()});
  }
}

void set_error_clip(const Variable& variable, double max, double min) {
  if (!variable || variable.desc().is_parameter) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "an error clip is for what layers compute",
                 .where = "set_error_clip",
                 .expected = "a variable that a layer returned",
                 .got = variable ? "parameter '" + variable.name() + "'" : "Variable()",
                 .fix = "give the optimizer a grad_clip to clip gradients of parameters"});
  }
  variable.edit().gradient_clip = GradientClipByValue(max, min);
}

}  // namespace clip

namespace {

using internal::append_simple;
using internal::make_result;

bool is_sparse(const Variable& grad) {
  return grad.desc().kind == VarKind::kSelectedRows;
}

// out = type(inputs), a new variable named as the layer would name it.
Variable append_new(Block& block, const std::string& type, SlotMap inputs, DType dtype,
                    AttributeMap attrs = {}) {
  Variable out = make_result(block, type, dtype);
  append_simple(block, type, std::move(inputs), {{"Out", {out.name()}}}, std::move(attrs));
  return out;
}

// Clipping selected rows gives selected rows.
Variable like(const Variable& grad, const Variable& clipped) {
  clipped.edit().kind = grad.desc().kind;
  return clipped;
}

Variable append_one_clip(const Variable& grad, const Penalty& clip) {
  Block& block = grad.block();
  if (clip.kind == "ClipByValue") {
    const ClipAttrs attrs{.min = static_cast<float>(clip.values.at("min")),
                          .max = static_cast<float>(clip.values.at("max"))};
    return like(grad, append_new(block, "clip", {{"X", {grad.name()}}}, grad.dtype(),
                                 to_attributes(attrs)));
  }
  const ClipByNormAttrs attrs{.max_norm = static_cast<float>(clip.values.at("clip_norm"))};
  return like(grad, append_new(block, "clip_by_norm", {{"X", {grad.name()}}}, grad.dtype(),
                               to_attributes(attrs)));
}

// The sum of the squares of one gradient.
Variable append_square_sum(const Variable& grad) {
  Block& block = grad.block();
  const auto of = [&](const char* type, const Variable& x) {
    return append_new(block, type, {{"X", {x.name()}}}, grad.dtype());
  };
  Variable values = grad;
  if (is_sparse(grad)) {
    values = of("merge_selected_rows", grad);
    values = of("get_tensor_from_selected_rows", values);
  }
  const Variable square = of("square", values);
  return append_new(block, "reduce_sum", {{"X", {square.name()}}}, grad.dtype(),
                    to_attributes(ReduceAttrs{.reduce_all = true}));
}

Variable append_limit(Block& block, DType dtype, double clip_norm) {
  const FillConstantAttrs fill{.shape = {1},
                               .dtype = dtype,
                               .value = static_cast<float>(clip_norm),
                               .str_value = float_text(clip_norm)};
  const Variable limit = append_new(block, "fill_constant", {}, dtype, to_attributes(fill));
  limit.set_stop_gradient(true);
  return limit;
}

Variable append_norm(Block& block, DType dtype, const std::vector<std::string>& square_sums) {
  const Variable sum = append_new(block, "sum", {{"X", square_sums}}, dtype);
  return append_new(block, "sqrt", {{"X", {sum.name()}}}, dtype);
}

// limit / max(limit, norm).
Variable append_factor(Block& block, const Variable& limit, const Variable& norm) {
  const DType dtype = limit.dtype();
  const Variable largest =
      append_new(block, "elementwise_max", {{"X", {limit.name()}}, {"Y", {norm.name()}}}, dtype);
  return append_new(block, "elementwise_div", {{"X", {limit.name()}}, {"Y", {largest.name()}}},
                    dtype);
}

Variable append_scaled(const Variable& grad, const Variable& factor) {
  return like(grad, append_new(grad.block(), "elementwise_mul",
                               {{"X", {grad.name()}}, {"Y", {factor.name()}}}, grad.dtype()));
}

// clip_norm / max(norm over the chosen, clip_norm); the ops that combine them belong to `last`.
Variable append_global_factor(const std::vector<ParamGrad>& pairs, const ParamGrad& last,
                              double clip_norm) {
  Program& program = pairs.front().param.program();
  std::vector<std::string> square_sums;
  for (const auto& [param, grad] : pairs) {
    const RoleGuard role(program, OpRole::kOptimize, {param.name(), grad.name()});
    square_sums.push_back(append_square_sum(grad).name());
  }
  const auto& [param, grad] = last;
  const RoleGuard role(program, OpRole::kOptimize, {param.name(), grad.name()});
  const Variable norm = append_norm(grad.block(), grad.dtype(), square_sums);
  return append_factor(grad.block(), append_limit(grad.block(), grad.dtype(), clip_norm), norm);
}

// The ops in [first_op, end_op) belong to the clipped gradients.
void retag(Block& block, size_t first_op, size_t end_op, const std::vector<ParamGrad>& clipped) {
  std::map<std::string, std::string> grads;
  for (const auto& [param, grad] : clipped) grads[param.name()] = grad.name();
  for (size_t i = first_op; i < end_op; ++i) {
    auto& role_var = block.op(i).role_var;
    if (!role_var.empty()) role_var = {role_var[0], grads.at(role_var[0])};
  }
}

bool asks_for_global_norm(const ParamGrad& pair) {
  const auto& clip = pair.param.desc().gradient_clip;
  return clip && clip->kind == "ClipByGlobalNorm";
}

// "gradient_clip_@CLIP/", then "gradient_clip_@CLIP_1/", …
std::string numbered_scope(const std::string& prefix, size_t i) {
  return i == 0 ? prefix + "/" : str_cat(prefix, "_", i, "/");
}

// What the parameters that ask for the global norm share.
struct GlobalNorm {
  Variable limit;
  Variable factor;
  std::vector<std::string> square_sums;
};

// The squares of the gradients that count, and the limit.
GlobalNorm append_noted_squares(const std::vector<ParamGrad>& pairs) {
  GlobalNorm global;
  double clip_norm = 0.0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& [param, grad] = pairs[i];
    if (!asks_for_global_norm(pairs[i])) continue;
    const RoleGuard role(param.program(), OpRole::kOptimize, {param.name(), grad.name()});
    const NameScopeGuard scope(param.program(), numbered_scope("gradient_clip_@CLIP", i));
    const double norm = param.desc().gradient_clip->values.at("clip_norm");
    if (!global.limit) {
      clip_norm = norm;
      global.limit = append_limit(grad.block(), grad.dtype(), clip_norm);
    } else if (norm != clip_norm) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "parameters clipped by their global norm must agree on it",
                   .where = "parameter '" + param.name() + "'",
                   .expected = str_cat("clip_norm ", clip_norm),
                   .got = str_cat(norm),
                   .fix = "give all of them one GradientClipByGlobalNorm"});
    }
    global.square_sums.push_back(append_square_sum(grad).name());
  }
  return global;
}

Variable append_noted_clip(const ParamGrad& pair, GlobalNorm& global) {
  const auto& [param, grad] = pair;
  if (!asks_for_global_norm(pair)) return append_one_clip(grad, *param.desc().gradient_clip);
  if (!global.factor) {
    const Variable norm = append_norm(grad.block(), grad.dtype(), global.square_sums);
    global.factor = append_factor(grad.block(), global.limit, norm);
  }
  return append_scaled(grad, global.factor);
}

}  // namespace

std::vector<ParamGrad> append_gradient_clip(
    const std::vector<ParamGrad>& pairs, const Penalty& clip,
    const std::function<bool(const Variable& param)>& need_clip) {
  clip::check_kind(clip, "append_gradient_clip");
  std::vector<ParamGrad> chosen;
  for (const ParamGrad& pair : pairs) {
    if (!need_clip || need_clip(pair.param)) chosen.push_back(pair);
  }
  if (chosen.empty()) return pairs;
  Block& block = pairs.front().grad.block();
  Program& program = block.program();
  const NameScopeGuard scope(program, "gradient_clip");
  const size_t first_op = block.op_count();
  Variable factor;
  if (clip.kind == "ClipByGlobalNorm") {
    factor = append_global_factor(chosen, pairs.back(), clip.values.at("clip_norm"));
  }
  std::vector<ParamGrad> clipped;
  for (const auto& [param, grad] : pairs) {
    if (need_clip && !need_clip(param)) {
      clipped.push_back({param, grad});
      continue;
    }
    const RoleGuard role(program, OpRole::kOptimize, {param.name(), grad.name()});
    clipped.push_back({param, factor ? append_scaled(grad, factor) : append_one_clip(grad, clip)});
  }
  retag(block, first_op, block.op_count(), clipped);
  return clipped;
}

std::vector<ParamGrad> append_noted_clips(const std::vector<ParamGrad>& pairs) {
  for (const auto& [param, grad] : pairs) {
    const auto& noted = param.desc().gradient_clip;
    if (noted) clip::check_kind(*noted, "append_gradient_clip");
  }
  if (pairs.empty()) return {};
  Block& block = pairs.front().grad.block();
  Program& program = block.program();
  const size_t first_op = block.op_count();
  GlobalNorm global = append_noted_squares(pairs);
  // As in Paddle, only these first ops are retagged.
  const size_t end_op = block.op_count();
  std::vector<ParamGrad> clipped;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& [param, grad] = pairs[i];
    if (!param.desc().gradient_clip) {
      clipped.push_back(pairs[i]);
      continue;
    }
    const RoleGuard role(program, OpRole::kOptimize, {param.name(), grad.name()});
    const NameScopeGuard scope(program, numbered_scope("graident_clip_@CLIP", i));
    clipped.push_back({param, append_noted_clip(pairs[i], global)});
  }
  retag(block, first_op, end_op, clipped);
  return clipped;
}

}  // namespace fleet::fluid
