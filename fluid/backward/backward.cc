#include "fluid/backward/backward.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/grad_ops.h"
#include "fluid/backward/recompute.h"
#include "fluid/ops/append.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

using internal::NameSet;

// The op that makes the loss gets the role forward|loss.
void mark_loss_op(const Variable& loss) {
  Block& block = loss.block();
  for (size_t i = block.op_count(); i-- > 0;) {
    const auto outputs = block.op(i).output_names();
    if (std::find(outputs.begin(), outputs.end(), loss.name()) == outputs.end()) continue;
    block.op(i).role = OpRole::kForward | OpRole::kLoss;
    return;
  }
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "nothing computes the loss",
               .where = str_cat("append_backward, loss '", loss.name(), "'"),
               .expected = "a variable that an op of the program makes",
               .got = "a variable without an op",
               .fix = "pass what a layer such as mean returned"});
}

void check_loss(const Variable& loss) {
  if (loss.block().index() != 0) {
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "the loss is in an inner block",
                 .where = str_cat("append_backward, loss '", loss.name(), "'"),
                 .expected = "a variable of block 0",
                 .got = str_cat("block ", loss.block().index()),
                 .fix = "compute the loss outside of control flow"});
  }
  if (loss.shape().rank() != 1 || loss.shape()[0] != 1) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = "the loss is not one number",
                 .where = str_cat("append_backward, loss '", loss.name(), "'"),
                 .expected = "shape [1]",
                 .got = loss.shape().to_string(),
                 .fix = "reduce it, for example with layers::mean"});
  }
}

Operator loss_grad_op(const Variable& loss) {
  Operator op;
  op.type = "fill_constant";
  op.outputs["Out"] = {grad_name(loss.name())};
  op.attrs = to_attributes(FillConstantAttrs{.shape = {1}, .dtype = loss.dtype(), .value = 1.0f});
  return op;
}

// Gradient variables that are there from an earlier call keep their names; new ones are renamed.
std::map<std::string, std::string> rename_existing(std::vector<Operator>& ops, const Block& block) {
  std::map<std::string, std::string> renamed;
  for (Operator& op : ops) {
    for (const std::string& name : op.input_names()) {
      if (const auto found = renamed.find(name); found != renamed.end()) {
        op.rename_input(name, found->second);
      }
    }
    for (const std::string& name : op.output_names()) {
      if (!internal::is_grad_name(name) || block.find_var(name) == nullptr) continue;
      const std::string fresh = unique_name::generate(name);
      op.rename_output(name, fresh);
      renamed[name] = fresh;
    }
  }
  return renamed;
}

// Makes the variables of gradients, shaped like what they are gradients of.
void make_grad_vars(const Operator& op, Block& block) {
  for (const std::string& name : op.output_names()) {
    if (block.find_var_recursive(name) != nullptr) continue;
    VarDesc desc;
    desc.name = name;
    const bool again = name.find(internal::kRecomputed) != std::string::npos;
    const VarDesc* forward = block.find_var_recursive(again ? internal::strip_recomputed(name)
                                                            : internal::strip_grad_suffix(name));
    if (forward != nullptr) {
      desc.dtype = forward->dtype;
      desc.shape = forward->shape;
      if (again) desc.kind = forward->kind;
      if (again) desc.lod_level = forward->lod_level;
    }
    block.add_var(std::move(desc));
  }
}

// Shape inference of a backward op knows less than the forward variables do.
void restore_shapes(const Operator& op, Block& block) {
  for (const std::string& name : op.output_names()) {
    if (!internal::is_grad_name(name)) continue;
    const VarDesc* forward = block.find_var_recursive(internal::strip_grad_suffix(name));
    if (forward == nullptr) continue;
    VarDesc& grad = block.var(name);
    grad.dtype = forward->dtype;
    grad.shape = forward->shape;
  }
}

// False for an op whose outputs nobody wants, or that reads only gradients nobody computed.
bool takes_part(const Operator& op, const Block& block) {
  if (op.output_names().empty()) return false;
  bool reads_grads = false;
  for (const std::string& name : op.input_names()) {
    if (!internal::is_grad_name(name)) continue;
    if (block.find_var_recursive(name) != nullptr) return true;
    reads_grads = true;
  }
  return !reads_grads;
}

// Clips in place the gradients that the op has just made whole.
void append_error_clips(const Operator& op, Block& block) {
  for (const std::string& name : op.output_names()) {
    if (!name.ends_with(kGradSuffix)) continue;
    const VarDesc* forward = block.find_var_recursive(internal::strip_grad_suffix(name));
    if (forward == nullptr || forward->is_parameter || !forward->gradient_clip) continue;
    const auto& bounds = forward->gradient_clip->values;
    const RoleGuard guard(block.program(), OpRole::kBackward);
    Operator clip;
    clip.type = "clip";
    clip.inputs["X"] = {name};
    clip.outputs["Out"] = {name};
    clip.attrs = to_attributes(ClipAttrs{.min = static_cast<float>(bounds.at("min")),
                                         .max = static_cast<float>(bounds.at("max"))});
    append_op(block, std::move(clip));
  }
}

// The first op starts from the loss when there is one.
void append_grad_ops(Block& block, std::vector<Operator> ops, bool from_loss = true) {
  Program& program = block.program();
  bool first = from_loss;
  for (Operator& op : ops) {
    if (!takes_part(op, block)) continue;
    make_grad_vars(op, block);
    const OpRole role = first ? OpRole::kBackward | OpRole::kLoss : OpRole::kBackward;
    const Operator* appended = nullptr;
    {
      const RoleGuard guard(program, role);
      appended = &append_op(block, std::move(op));
    }
    restore_shapes(*appended, block);
    append_error_clips(*appended, block);
    first = false;
  }
}

std::vector<std::string> wanted_parameters(const Block& block, const BackwardOptions& options) {
  std::vector<std::string> names;
  if (options.parameter_list) {
    for (const std::string& name : *options.parameter_list) names.push_back(block.var(name).name);
    return names;
  }
  for (const VarDesc* param : block.parameters()) {
    if (param->trainable) names.push_back(param->name);
  }
  return names;
}

// The position of the op that makes each variable last, among those from position `first` on.
std::map<std::string, size_t, std::less<>> makers(const Block& block, size_t first) {
  std::map<std::string, size_t, std::less<>> found;
  for (size_t i = first; i < block.op_count(); ++i) {
    for (const auto& [slot, names] : block.op(i).outputs) {
      for (const std::string& name : names) found[name] = i;
    }
  }
  return found;
}

// What no gradient is computed for: variables that stop gradients, and those named.
NameSet without_gradient(const Block& block, const std::set<std::string>& named) {
  NameSet no_grad;
  for (const VarDesc* var : block.vars()) {
    if (var->stop_gradient) no_grad.insert(var->name);
  }
  for (const std::string& name : named) no_grad.insert(block.var(name).name);
  return no_grad;
}

}  // namespace

std::vector<ParamGrad> append_backward(const Variable& loss, const BackwardOptions& options) {
  check_loss(loss);
  mark_loss_op(loss);
  Block& block = loss.block();
  const OpTable& table = op_table(block.program());
  const std::vector<std::string> parameters = wanted_parameters(block, options);

  NameSet no_grad = without_gradient(block, options.no_grad_set);
  const auto path = internal::find_op_path(block, loss.name(), no_grad);
  no_grad.merge(internal::find_unused_outputs(block, path, loss.name(), no_grad));

  const NameSet produced = {grad_name(loss.name())};
  std::vector<Operator> ops = options.checkpoints.empty()
                                  ? internal::make_grad_ops(block, path, no_grad, table, produced)
                                  : internal::make_recomputing_grad_ops(
                                        block, path, no_grad, options.checkpoints, table, produced);
  internal::sum_repeated_outputs(ops, block.index());
  NameSet no_grad_names;
  for (const std::string& name : no_grad) no_grad_names.insert(grad_name(name));
  internal::remove_no_grad_branches(ops, no_grad_names, table);
  ops.insert(ops.begin(), loss_grad_op(loss));
  const auto renamed = rename_existing(ops, block);
  NameSet before;
  for (const VarDesc* var : block.vars()) before.insert(var->name);
  const size_t first = block.op_count();
  append_grad_ops(block, std::move(ops));

  const auto made_by = makers(block, first);
  std::vector<ParamGrad> pairs;
  for (const std::string& param : parameters) {
    std::string grad = grad_name(param);
    if (const auto found = renamed.find(grad); found != renamed.end()) grad = found->second;
    if (!block.has_var(grad) || before.contains(grad)) continue;
    if (const auto maker = made_by.find(grad); maker != made_by.end()) {
      auto& role_var = block.edit_op(maker->second).role_var;
      role_var.insert(role_var.begin(), {param, grad});
    }
    pairs.push_back({Variable(block, param), Variable(block, grad)});
  }
  return pairs;
}

namespace {

void check_gradients(const std::vector<Variable>& targets, const std::vector<Variable>& inputs,
                     const GradientsOptions& options) {
  const auto fail = [](std::string what, std::string got) {
    throw_error(ErrorCode::kInvalidProgram,
                {.what = std::move(what),
                 .where = "gradients",
                 .expected = "variables of block 0 of one program; no target_gradients, or one for "
                             "each target",
                 .got = std::move(got),
                 .fix = "pass what layers returned"});
  };
  if (targets.empty() || inputs.empty()) fail("targets and inputs must be given", "none");
  const size_t given = options.target_gradients.size();
  if (given != 0 && given != targets.size()) {
    fail("every target needs a gradient", str_cat(given, " for ", targets.size(), " targets"));
  }
  for (const auto* list : {&targets, &inputs, &options.target_gradients}) {
    for (const Variable& variable : *list) {
      if (!variable) fail("a variable is empty", "Variable()");
      if (variable.block().index() != 0 || &variable.program() != &targets.front().program()) {
        fail("a variable is in another block or program", "'" + variable.name() + "'");
      }
    }
  }
  for (size_t i = 0; i < given; ++i) {
    if (options.target_gradients[i].shape().compatible(targets[i].shape())) continue;
    fail("a target gradient has another shape than its target",
         str_cat("'", targets[i].name(), "' ", targets[i].shape(), ", gradient ",
                 options.target_gradients[i].shape()));
  }
}

// The ops between inputs and targets. What they read from elsewhere, and what they make that
// neither they nor the targets use, joins `no_grad`.
std::vector<size_t> find_path_between(const Block& block, const std::vector<Variable>& targets,
                                      const std::vector<Variable>& inputs, NameSet& no_grad) {
  const auto any = [](const std::vector<std::string>& names, const NameSet& set) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return set.contains(name); });
  };
  NameSet reached;
  for (const Variable& input : inputs) {
    if (!no_grad.contains(input.name())) reached.insert(input.name());
  }
  std::vector<size_t> forward;
  for (size_t i = 0; i < block.op_count(); ++i) {
    if (!any(block.op(i).input_names(), reached)) continue;
    for (const std::string& name : block.op(i).output_names()) {
      if (!no_grad.contains(name)) reached.insert(name);
    }
    forward.push_back(i);
  }
  NameSet needed;
  for (const Variable& target : targets) needed.insert(target.name());
  std::vector<size_t> path;
  for (auto i = forward.rbegin(); i != forward.rend(); ++i) {
    const Operator& op = block.op(*i);
    if (!any(op.output_names(), needed)) continue;
    for (const std::string& name : op.output_names()) {
      if (!needed.contains(name)) no_grad.insert(name);
    }
    for (const std::string& name : op.input_names()) {
      if (!reached.contains(name)) {
        no_grad.insert(name);
      } else if (!no_grad.contains(name)) {
        needed.insert(name);
      }
    }
    path.push_back(*i);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

// Ones, or the gradient given, as the gradient of a target.
std::vector<Operator> start_ops(const Variable& target, const Variable* given) {
  Operator start;
  start.type = given != nullptr ? "assign" : "fill_zeros_like";
  start.inputs["X"] = {given != nullptr ? given->name() : target.name()};
  start.outputs["Out"] = {grad_name(target.name())};
  if (given != nullptr) return {start};
  // The batch is not known yet: zeros of the target's shape, plus one.
  start.outputs["Out"] = {grad_name(target.name()) + "@START"};
  Operator ones;
  ones.type = "scale";
  ones.inputs["X"] = start.outputs["Out"];
  ones.outputs["Out"] = {grad_name(target.name())};
  ones.attrs = to_attributes(ScaleAttrs{.bias = 1.0});
  return {start, ones};
}

}  // namespace

std::vector<Variable> gradients(const std::vector<Variable>& targets,
                                const std::vector<Variable>& inputs,
                                const GradientsOptions& options) {
  check_gradients(targets, inputs, options);
  Block& block = targets.front().block();
  const OpTable& table = op_table(block.program());
  NameSet no_grad = without_gradient(block, options.no_grad_set);
  const auto path = find_path_between(block, targets, inputs, no_grad);
  std::vector<Operator> ops;
  for (size_t i = 0; i < targets.size(); ++i) {
    const bool given = !options.target_gradients.empty();
    for (Operator& op : start_ops(targets[i], given ? &options.target_gradients[i] : nullptr)) {
      ops.push_back(std::move(op));
    }
  }
  NameSet produced;
  for (const Variable& target : targets) produced.insert(grad_name(target.name()));
  for (Operator& op : internal::make_grad_ops(block, path, no_grad, table, produced)) {
    ops.push_back(std::move(op));
  }
  internal::sum_repeated_outputs(ops, block.index());
  NameSet no_grad_names;
  for (const std::string& name : no_grad) no_grad_names.insert(grad_name(name));
  internal::remove_no_grad_branches(ops, no_grad_names, table);
  const auto renamed = rename_existing(ops, block);
  const size_t first = block.op_count();
  append_grad_ops(block, std::move(ops), false);
  const auto made_by = makers(block, first);
  std::vector<Variable> found;
  for (const Variable& input : inputs) {
    std::string grad = grad_name(input.name());
    if (const auto other = renamed.find(grad); other != renamed.end()) grad = other->second;
    const bool made = made_by.contains(grad);
    found.push_back(made ? Variable(block, block.var(grad)) : Variable());
  }
  return found;
}

}  // namespace fleet::fluid
