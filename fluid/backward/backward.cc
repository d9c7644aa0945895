#include "fluid/backward/backward.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/backward/grad_ops.h"
#include "fluid/ops/append.h"
#include "fluid/ops/fill.h"
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
  op.outputs["Out"] = {internal::grad_name(loss.name())};
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
    const VarDesc* forward = block.find_var_recursive(internal::strip_grad_suffix(name));
    if (forward != nullptr) {
      desc.dtype = forward->dtype;
      desc.shape = forward->shape;
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

void append_grad_ops(Block& block, std::vector<Operator> ops, const OpTable& table) {
  Program& program = block.program();
  bool first = true;
  for (Operator& op : ops) {
    if (!takes_part(op, block)) continue;
    make_grad_vars(op, block);
    const OpRole role = first ? OpRole::kBackward | OpRole::kLoss : OpRole::kBackward;
    const RoleGuard guard(program, role);
    restore_shapes(append_op(block, std::move(op), table), block);
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

// Puts (parameter, gradient) in front of the role variables of the op that makes the gradient.
void tag_grad_op(Block& block, const std::string& param, const std::string& grad) {
  for (size_t i = block.op_count(); i-- > 0;) {
    Operator& op = block.op(i);
    const auto outputs = op.output_names();
    if (std::find(outputs.begin(), outputs.end(), grad) == outputs.end()) continue;
    op.role_var.insert(op.role_var.begin(), {param, grad});
    return;
  }
}

}  // namespace

std::vector<ParamGrad> append_backward(const Variable& loss, const BackwardOptions& options,
                                       const OpTable& table) {
  check_loss(loss);
  mark_loss_op(loss);
  Block& block = loss.block();
  const std::vector<std::string> parameters = wanted_parameters(block, options);

  NameSet no_grad;
  for (const auto& [name, var] : block.vars()) {
    if (var->stop_gradient) no_grad.insert(name);
  }
  for (const std::string& name : options.no_grad_set) no_grad.insert(block.var(name).name);
  const auto path = internal::find_op_path(block, loss.name(), no_grad);
  no_grad.merge(internal::find_unused_outputs(block, path, loss.name(), no_grad));

  std::vector<Operator> ops = internal::make_grad_ops(
      block, path, no_grad, table, {internal::grad_name(loss.name())});
  internal::sum_repeated_outputs(ops, block.index());
  NameSet no_grad_names;
  for (const std::string& name : no_grad) no_grad_names.insert(internal::grad_name(name));
  internal::remove_no_grad_branches(ops, no_grad_names);
  ops.insert(ops.begin(), loss_grad_op(loss));
  const auto renamed = rename_existing(ops, block);
  NameSet before;
  for (const auto& [name, var] : block.vars()) before.insert(name);
  append_grad_ops(block, std::move(ops), table);

  std::vector<ParamGrad> pairs;
  for (const std::string& param : parameters) {
    std::string grad = internal::grad_name(param);
    if (const auto found = renamed.find(grad); found != renamed.end()) grad = found->second;
    VarDesc* desc = block.find_var(grad);
    if (desc == nullptr || before.contains(grad)) continue;
    tag_grad_op(block, param, grad);
    pairs.push_back({Variable(block, block.var(param)), Variable(block, *desc)});
  }
  return pairs;
}

}  // namespace fleet::fluid
