#include "fluid/backward/block_grads.h"

#include <algorithm>

#include "base/strings.h"
#include "fluid/ops/append.h"
#include "fluid/ops/control/control_flow.h"
#include "fluid/ops/grad_names.h"

namespace fleet::fluid::internal {
namespace {

using Names = std::vector<std::string>;

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What is asked of a block, in its own names.
struct Wanted {
  Names targets;    // variables whose gradients come in
  Names inputs;     // variables whose gradients go out
  Names rewritten;  // outside variables that the block writes
};

struct Differentiated {
  int32_t block = -1;
  Names incoming;  // of each target: what the gradient's block calls its gradient
  Names outgoing;  // of each input; "" for one that gets none
};

class BlockDifferentiator {
 public:
  BlockDifferentiator(Block& forward, Wanted wanted, NameSet no_grad, const OpTable& table)
      : forward_(forward),
        grads_(forward.program().add_block(forward.index())),
        wanted_(std::move(wanted)),
        no_grad_(std::move(no_grad)),
        table_(table) {
    grads_.set_forward_block(forward.index());
  }

  Differentiated run() {
    declare_versions();
    const std::vector<Operator> saved = tell_versions_apart();
    add_without_gradient();
    std::vector<Operator> ops = gradient_ops();
    for (size_t i = 0; i < saved.size(); ++i) forward_.op(i) = saved[i];
    append(std::move(ops));
    Differentiated result{.block = grads_.index(), .incoming = incoming_, .outgoing = {}};
    for (const std::string& name : wanted_.inputs) {
      const std::string grad = grad_name(version_before(name));
      const bool made = grads_.find_var(grad) != nullptr && !contains(incoming_, grad);
      result.outgoing.push_back(made ? grad : std::string());
    }
    return result;
  }

 private:
  std::string version_before(const std::string& name) const {
    return contains(wanted_.rewritten, name) ? name + std::string(kLoopIn) : name;
  }

  void declare_like(const std::string& name, const std::string& like) {
    const VarDesc* known = forward_.find_var_recursive(like);
    if (known == nullptr || grads_.find_var(name) != nullptr) return;
    VarDesc desc;
    desc.name = name;
    desc.kind = known->kind;
    desc.dtype = known->dtype;
    desc.shape = known->shape;
    desc.lod_level = known->lod_level;
    grads_.add_var(std::move(desc));
  }

  // A rewritten variable's values before and after the run, as the gradient's block knows them.
  void declare_versions() {
    for (const std::string& name : wanted_.rewritten) {
      declare_like(version_before(name), name);
      declare_like(name, name);
    }
  }

  // Reads of the value before the run get its name; gives the ops as they were.
  std::vector<Operator> tell_versions_apart() {
    std::vector<Operator> saved;
    NameSet written;
    for (size_t i = 0; i < forward_.op_count(); ++i) {
      Operator& op = forward_.op(i);
      saved.push_back(op);
      for (const std::string& name : wanted_.rewritten) {
        const bool nested = table_.at(op.type).block_gradient.kind != BlockGradient::Kind::kNone;
        if (!nested && !written.contains(name)) op.rename_input(name, version_before(name));
      }
      for (const std::string& name : op.output_names()) written.insert(name);
    }
    return saved;
  }

  // Integers, and what is marked, have no gradient.
  void add_without_gradient() {
    for (const auto& op : forward_.ops()) {
      Names names = op->input_names();
      const Names outputs = op->output_names();
      names.insert(names.end(), outputs.begin(), outputs.end());
      for (const std::string& name : names) {
        const VarDesc* var = grads_.find_var_recursive(name);
        if (var == nullptr || !is_floating(var->dtype) || !var->typed || var->stop_gradient) {
          no_grad_.insert(name);
        }
      }
    }
  }

  std::vector<size_t> path() const {
    NameSet needed(wanted_.targets.begin(), wanted_.targets.end());
    std::vector<size_t> found;
    for (size_t i = forward_.op_count(); i-- > 0;) {
      const Names outputs = forward_.op(i).output_names();
      const bool leads = std::any_of(outputs.begin(), outputs.end(),
                                     [&](const auto& name) { return needed.contains(name); });
      if (!leads) continue;
      for (const std::string& name : forward_.op(i).input_names()) {
        if (!no_grad_.contains(name)) needed.insert(name);
      }
      found.push_back(i);
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  void add_unused(const std::vector<size_t>& on_path) {
    NameSet used(wanted_.targets.begin(), wanted_.targets.end());
    for (auto i = on_path.rbegin(); i != on_path.rend(); ++i) {
      const Names inputs = forward_.op(*i).input_names();
      for (const std::string& name : forward_.op(*i).output_names()) {
        if (!used.contains(name) && !contains(inputs, name)) no_grad_.insert(name);
      }
      used.insert(inputs.begin(), inputs.end());
    }
  }

  std::vector<Operator> gradient_ops() {
    const std::vector<size_t> on_path = path();
    add_unused(on_path);
    NameSet produced;
    Operator given;  // stands for what comes in
    for (const std::string& name : wanted_.targets) {
      given.outputs["Out"].push_back(grad_name(name));
      produced.insert(grad_name(name));
    }
    std::vector<Operator> ops = make_grad_ops(forward_, on_path, no_grad_, table_, produced);
    ops.insert(ops.begin(), given);
    sum_repeated_outputs(ops, grads_.index());
    incoming_ = ops.front().output("Out");
    ops.erase(ops.begin());
    NameSet without;
    for (const std::string& name : no_grad_) without.insert(grad_name(name));
    remove_no_grad_branches(ops, without, table_);
    return ops;
  }

  bool known(const std::string& name) const {
    if (!is_grad_name(name)) return grads_.find_var_recursive(name) != nullptr;
    return grads_.find_var(name) != nullptr;
  }

  void append(std::vector<Operator> ops) {
    for (size_t k = 0; k < incoming_.size(); ++k) declare_like(incoming_[k], wanted_.targets[k]);
    const RoleGuard guard(grads_.program(), OpRole::kBackward);
    for (Operator& op : ops) {
      const Names inputs = op.input_names();
      const bool fed = std::all_of(inputs.begin(), inputs.end(),
                                   [this](const auto& name) { return known(name); });
      if (!fed || op.output_names().empty()) continue;
      const Names made = op.output_names();
      for (const std::string& name : made) {
        const std::string origin(strip_grad_suffix(name));
        VarDesc desc;
        desc.name = name;
        if (const VarDesc* like = grads_.find_var_recursive(origin)) {
          desc.dtype = like->dtype;
          desc.shape = like->shape;
          desc.kind = like->kind;
        }
        if (grads_.find_var(name) == nullptr) grads_.add_var(std::move(desc));
      }
      append_op(grads_, std::move(op));
      for (const std::string& name : made) {
        const VarDesc* like = grads_.find_var_recursive(strip_grad_suffix(name));
        VarDesc& grad = *grads_.find_var(name);
        if (like == nullptr) continue;
        grad.dtype = like->dtype;
        grad.shape = like->shape;
      }
    }
  }

  Block& forward_;
  Block& grads_;
  Wanted wanted_;
  NameSet no_grad_;
  const OpTable& table_;
  Names incoming_;
};

Block& sub_block(Block& block, const Operator& op) {
  const auto& ref = std::get<BlockRef>(*op.attr("sub_block"));
  return block.program().block(ref.index);
}

bool may_have_gradient(const Block& block, const std::string& name, const NameSet& no_grad) {
  const VarDesc* var = block.find_var_recursive(name);
  return var != nullptr && var->typed && is_floating(var->dtype) && !no_grad.contains(name);
}

// Variables of `names` that ops of the block write.
Names written_by(const Block& block, const Names& names) {
  Names written;
  for (const std::string& name : names) {
    const bool writes = std::any_of(block.ops().begin(), block.ops().end(), [&](const auto& op) {
      return contains(op->output_names(), name);
    });
    if (writes && !contains(written, name)) written.push_back(name);
  }
  return written;
}

Names targets_of(const Block& block, const Names& outs, const NameSet& no_grad,
                 const NameSet& produced) {
  Names targets;
  for (const std::string& name : outs) {
    const bool given = produced.contains(grad_name(name));
    if (given && may_have_gradient(block, name, no_grad)) targets.push_back(name);
  }
  return targets;
}

// The variable that holds what `var` was before the op.
std::string declare_before(Block& block, const VarDesc& var) {
  VarDesc desc;
  desc.name = var.name + std::string(kLoopIn);
  desc.dtype = var.dtype;
  desc.shape = var.shape;
  desc.stop_gradient = true;
  return block.add_var(std::move(desc)).name;
}

std::vector<Operator> loop_gradient(Block& block, const Operator& op, const NameSet& no_grad,
                                    const NameSet& produced, const OpTable& table,
                                    const BlockGradient& slots) {
  const std::string& x_slot = slots.inputs;
  const std::string& scopes_slot = slots.scopes;
  Block& forward = sub_block(block, op);
  const Names& xs = op.input(x_slot);
  Wanted wanted{.targets = targets_of(block, op.output("Out"), no_grad, produced),
                .inputs = xs,
                .rewritten = written_by(forward, op.output("Out"))};
  if (wanted.targets.empty()) return {};
  const Differentiated made = BlockDifferentiator(forward, wanted, no_grad, table).run();
  Operator grad;
  grad.type = op.type + "_grad";
  grad.inputs[x_slot] = xs;
  grad.inputs[scopes_slot] = op.output(scopes_slot);
  Names grads;
  bool any = false;
  for (size_t k = 0; k < xs.size(); ++k) {
    const bool rewritten = contains(wanted.rewritten, xs[k]);
    const bool goes =
        may_have_gradient(block, xs[k], no_grad) && (!made.outgoing[k].empty() || rewritten);
    grads.push_back(goes ? grad_name(xs[k]) : std::string());
    any = any || goes;
  }
  if (!any) return {};
  for (const std::string& name : wanted.targets) {
    grad.inputs["Out@GRAD"].push_back(grad_name(name));
  }
  grad.outputs[grad_name(x_slot)] = grads;
  for (const std::string& name : wanted.rewritten) {
    if (const VarDesc* var = block.find_var_recursive(name); var->kind == VarKind::kLodTensor) {
      grad.outputs["Before"].push_back(declare_before(block, *var));
    }
  }
  grad.attrs = to_attributes(BlockGradAttrs{.sub_block = {made.block},
                                            .outs = wanted.targets,
                                            .out_grads = made.incoming,
                                            .x_grads = made.outgoing,
                                            .rewritten = wanted.rewritten});
  return {grad};
}

std::vector<Operator> recurrent_gradient(Block& block, const Operator& op, const NameSet& no_grad,
                                         const NameSet& produced, const OpTable& table) {
  Block& forward = sub_block(block, op);
  const auto attrs = parse_attributes<RecurrentAttrs>(op.type, op.attrs);
  const Names outs = targets_of(block, op.output("outputs"), no_grad, produced);
  if (outs.empty()) return {};
  Wanted wanted{.targets = outs, .inputs = {}, .rewritten = {}};
  Names taken_states;
  for (const std::string& name : attrs.states) {
    // An output may be a state as well.
    if (!contains(wanted.targets, name)) wanted.targets.push_back(name);
  }
  const auto add = [&](const Names& names) {
    wanted.inputs.insert(wanted.inputs.end(), names.begin(), names.end());
  };
  add(attrs.ex_states);
  add(op.input("inputs"));
  add(op.input("parameters"));
  const Differentiated made = BlockDifferentiator(forward, wanted, no_grad, table).run();
  const auto first = made.outgoing.begin();
  const auto inputs = first + static_cast<std::ptrdiff_t>(attrs.ex_states.size());
  const auto parameters = inputs + static_cast<std::ptrdiff_t>(op.input("inputs").size());
  RecurrentGradAttrs result{
      .sub_block = {made.block},
      .reverse = attrs.reverse,
      .states = attrs.states,
      .out_grads = Names(made.incoming.begin(),
                         made.incoming.begin() + static_cast<std::ptrdiff_t>(outs.size())),
      .state_grads = {},
      .ex_state_grads = Names(first, inputs),
      .input_grads = Names(inputs, parameters),
      .parameter_grads = Names(parameters, made.outgoing.end())};
  for (const std::string& name : attrs.states) {
    const auto at = std::find(wanted.targets.begin(), wanted.targets.end(), name);
    result.state_grads.push_back(made.incoming[static_cast<size_t>(at - wanted.targets.begin())]);
  }
  Operator grad;
  grad.type = "recurrent_grad";
  grad.inputs["step_scopes"] = op.output("step_scopes");
  for (const std::string& name : outs) grad.inputs["outputs@GRAD"].push_back(grad_name(name));
  const auto give = [&](const std::string& slot, const Names& inner) {
    const Names& names = op.input(slot);
    if (names.empty()) return;
    grad.inputs[slot] = names;
    Names& grads = grad.outputs[grad_name(slot)];
    for (size_t k = 0; k < names.size(); ++k) {
      const bool goes = may_have_gradient(block, names[k], no_grad) && !inner[k].empty();
      grads.push_back(goes ? grad_name(names[k]) : std::string());
    }
  };
  give("initial_states", result.ex_state_grads);
  give("inputs", result.input_grads);
  give("parameters", result.parameter_grads);
  grad.attrs = to_attributes(result);
  return {grad};
}

}  // namespace

std::vector<Operator> make_block_gradient(Block& block, const Operator& op, const NameSet& no_grad,
                                          const NameSet& produced, const OpTable& table) {
  const BlockGradient& rule = table.at(op.type).block_gradient;
  if (rule.kind == BlockGradient::Kind::kSteps) {
    return recurrent_gradient(block, op, no_grad, produced, table);
  }
  return loop_gradient(block, op, no_grad, produced, table, rule);
}

}  // namespace fleet::fluid::internal
