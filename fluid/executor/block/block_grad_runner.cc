#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/block/block_grad_runner_impl.h"
#include "fluid/kernels/accumulate.h"
#include "fluid/ops/control/control_flow.h"
#include "fluid/ops/grad_names.h"

namespace fleet::fluid {
namespace {

// One after the other; there are some.
SelectedRows joined(const std::vector<SelectedRows>& parts) {
  SelectedRows all{.rows = {}, .height = parts.front().height, .value = {}};
  for (const SelectedRows& part : parts) {
    all.rows.insert(all.rows.end(), part.rows.begin(), part.rows.end());
  }
  Shape shape = parts.front().value.shape();
  shape.set(0, static_cast<int64_t>(all.rows.size()));
  all.value = Tensor(parts.front().value.dtype(), shape);
  int64_t row = 0;
  for (const SelectedRows& part : parts) {
    const auto end = row + static_cast<int64_t>(part.rows.size());
    all.value.rows(row, end).copy_from(part.value);
    row = end;
  }
  return all;
}

// to += from, whatever both are; nothing is zero.
void add_value(const Value& from, Value& to, const Tiles& tiles) {
  if (const auto* tensor = std::get_if<Tensor>(&from)) {
    if (!std::holds_alternative<Tensor>(to)) to = Tensor();
    accumulate(*tensor, *std::get_if<Tensor>(&to), tiles);
  } else if (const auto* rows = std::get_if<SelectedRows>(&from)) {
    const auto* former = std::get_if<SelectedRows>(&to);
    const bool any = former != nullptr && former->value.initialized();
    to = any ? joined({*former, *rows}) : joined({*rows});
  } else if (const auto* array = std::get_if<TensorArray>(&from)) {
    if (!std::holds_alternative<TensorArray>(to)) to = TensorArray();
    auto& sums = *std::get_if<TensorArray>(&to);
    if (sums.size() < array->size()) sums.resize(array->size());
    for (size_t i = 0; i < array->size(); ++i) accumulate((*array)[i], sums[i], tiles);
  }
}

// What all iterations give, added up. Rows are joined once: each time, all that there is is copied.
class SumOfIterations {
 public:
  void add(const Value& from, const Tiles& tiles) {
    const auto* rows = std::get_if<SelectedRows>(&from);
    if (rows == nullptr) return add_value(from, sum_, tiles);
    rows_.push_back({rows->rows, rows->height, rows->value.clone()});
  }
  // Empty when nothing came.
  Value sum() const { return rows_.empty() ? sum_ : joined(rows_); }

 private:
  Value sum_;
  std::vector<SelectedRows> rows_;
};

Value zeros_like(const Value* value) {
  const auto* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
  if (tensor != nullptr && tensor->initialized()) {
    return Tensor::zeros(tensor->dtype(), tensor->shape());
  }
  if (value != nullptr && std::holds_alternative<TensorArray>(*value)) return TensorArray();
  return {};
}

// Of while and conditional_block. A variable that the block rewrites has one gradient for its
// value after the iteration, which the block takes in, and one for its value before, which goes on
// to the iteration before.
class LoopGradRunner final : public BlockGradRunner {
 public:
  LoopGradRunner(Workspace& outer, const PlanOp& op, std::string_view scopes_slot,
                 const std::string& x_slot)
      : BlockGradRunner(outer, op, scopes_slot),
        attrs_(parse_attributes<BlockGradAttrs>(op.op->type, op.op->attrs)),
        xs_(op.op->input(x_slot)),
        grads_(op.op->output(grad_name(x_slot))) {}

  void run(const Workspace::Step& step, int shard) override {
    BlockHistory& past = history();
    std::map<std::string, Value> states;  // gradients of rewritten variables
    const auto& incoming = op_.op->input("Out@GRAD");
    for (size_t k = 0; k < incoming.size(); ++k) {
      if (const Value* value = outer_.find(incoming[k])) states[attrs_.outs[k]] = *value;
    }
    std::map<std::string, SumOfIterations> sums;  // of variables that are only read
    for (size_t i = past.count; i-- > 0;) {
      Workspace& now = workspace_of(past, i);
      bind(past, i, now, states);
      now.run_inner(step_of_iteration(step, i), shard);
      collect(now, states, sums, step.tiles);
    }
    for (size_t k = 0; k < grads_.size(); ++k) {
      if (grads_[k].empty()) continue;
      const bool state = is_rewritten(xs_[k]);
      Value result = state ? states[xs_[k]] : sums[xs_[k]].sum();
      if (std::holds_alternative<std::monostate>(result)) result = zeros_like(outer_.find(xs_[k]));
      put(grads_[k], std::move(result));
    }
    // For the gradients of what came before the op.
    for (const std::string& name : op_.op->output("Before")) {
      const std::string origin = name.substr(0, name.size() - kLoopIn.size());
      const auto at = position(past, origin);
      if (at < past.rewritten.size()) put(name, past.before.front()[at]);
    }
  }

 private:
  static size_t position(const BlockHistory& past, const std::string& name) {
    const auto found = std::find(past.rewritten.begin(), past.rewritten.end(), name);
    return static_cast<size_t>(found - past.rewritten.begin());
  }

  bool is_rewritten(const std::string& name) const {
    return std::find(attrs_.rewritten.begin(), attrs_.rewritten.end(), name) !=
           attrs_.rewritten.end();
  }

  void bind(BlockHistory& past, size_t i, Workspace& now, std::map<std::string, Value>& states) {
    for (size_t k = 0; k < attrs_.outs.size(); ++k) {
      Value* target = inner(now, attrs_.out_grads[k]);
      if (target == nullptr) continue;
      const Value& given = states[attrs_.outs[k]];
      *target = std::holds_alternative<std::monostate>(given)
                    ? zeros_like(outer_.find(attrs_.outs[k]))
                    : given;
      if (auto* tensor = std::get_if<Tensor>(target); tensor != nullptr && tensor->initialized()) {
        *tensor = tensor->clone();
      }
    }
    for (const std::string& name : attrs_.rewritten) {
      const size_t at = position(past, name);
      const Value* array = outer_.find(name);
      const bool dense = at < past.rewritten.size() && past.before[i][at].initialized();
      const bool made = at < past.rewritten.size() && past.before[i + 1][at].initialized();
      if (Value* before = inner(now, name + std::string(kLoopIn))) {
        if (dense) {
          *before = past.before[i][at];
        } else if (array != nullptr && std::holds_alternative<TensorArray>(*array)) {
          *before = *array;
        }
      }
      if (Value* after = inner(now, name)) {
        if (made) {
          *after = past.before[i + 1][at];
        } else if (array != nullptr && std::holds_alternative<TensorArray>(*array)) {
          *after = *array;
        }
      }
    }
    for (const std::string& name : attrs_.x_grads) forget(now, name);
  }

  void collect(Workspace& now, std::map<std::string, Value>& states,
               std::map<std::string, SumOfIterations>& sums, const Tiles& tiles) {
    std::map<std::string, Value> next;
    // What the iteration did not write in an array keeps its gradient.
    for (size_t k = 0; k < attrs_.outs.size(); ++k) {
      const Value* rest = inner(now, attrs_.out_grads[k]);
      if (rest == nullptr) rest = &states[attrs_.outs[k]];
      if (std::holds_alternative<TensorArray>(*rest)) next[attrs_.outs[k]] = *rest;
    }
    for (size_t k = 0; k < xs_.size(); ++k) {
      const Value* made = inner(now, attrs_.x_grads[k]);
      if (made == nullptr) continue;
      if (is_rewritten(xs_[k])) {
        add_value(*made, next[xs_[k]], tiles);
      } else {
        sums[xs_[k]].add(*made, tiles);
      }
    }
    states = std::move(next);
  }

  BlockGradAttrs attrs_;
  std::vector<std::string> xs_;
  std::vector<std::string> grads_;
};

class RecurrentGradRunner final : public BlockGradRunner {
 public:
  RecurrentGradRunner(Workspace& outer, const PlanOp& op)
      : BlockGradRunner(outer, op, "step_scopes"),
        attrs_(parse_attributes<RecurrentGradAttrs>(op.op->type, op.op->attrs)) {}

  void run(const Workspace::Step& step, int shard) override {
    BlockHistory& past = history();
    const Operator& op = *op_.op;
    states_.assign(attrs_.states.size(), Value());
    inputs_.assign(op.input("inputs").size(), Value());
    std::vector<SumOfIterations> parameters(op.input("parameters").size());
    for (size_t i = past.count; i-- > 0;) {
      const size_t t = attrs_.reverse ? past.count - 1 - i : i;
      Workspace& now = workspace_of(past, i);
      bind(now, i, t, past, step.tiles);
      now.run_inner(step_of_iteration(step, i), shard);
      collect(now, t, past.count, parameters, step.tiles);
    }
    finish("inputs", inputs_);
    finish("initial_states", states_);
    std::vector<Value> sums;
    sums.reserve(parameters.size());
    for (const SumOfIterations& one : parameters) sums.push_back(one.sum());
    finish("parameters", sums);
  }

 private:
  void bind(Workspace& now, size_t i, size_t t, BlockHistory& past, const Tiles& tiles) {
    const auto& grads = op_.op->input("outputs@GRAD");
    for (size_t k = 0; k < grads.size(); ++k) {
      Value* target = inner(now, attrs_.out_grads[k]);
      if (target == nullptr) continue;
      const Tensor& whole = need_tensor(outer_.find(grads[k]), *op_.op, grads[k]);
      const Shape rest(whole.shape().dims().subspan(1));
      const auto row = static_cast<int64_t>(t);
      *target = whole.rows(row, row + 1).reshaped(rest).clone();
    }
    for (size_t k = 0; k < attrs_.states.size(); ++k) {
      Value* target = inner(now, attrs_.state_grads[k]);
      if (target == nullptr) continue;
      // An output may be a state as well.
      const auto& outs = attrs_.out_grads;
      if (std::find(outs.begin(), outs.end(), attrs_.state_grads[k]) != outs.end()) {
        add_value(states_[k], *target, tiles);
        continue;
      }
      *target = std::holds_alternative<std::monostate>(states_[k])
                    ? zeros_like(past.iterations[i]->find(attrs_.states[k]))
                    : states_[k];
    }
    for (const auto* names :
         {&attrs_.ex_state_grads, &attrs_.input_grads, &attrs_.parameter_grads}) {
      for (const std::string& name : *names) forget(now, name);
    }
  }

  void collect(Workspace& now, size_t t, size_t length, std::vector<SumOfIterations>& parameters,
               const Tiles& tiles) {
    for (size_t k = 0; k < attrs_.ex_state_grads.size(); ++k) {
      const Value* made = inner(now, attrs_.ex_state_grads[k]);
      states_[k] = std::monostate();
      if (made != nullptr) add_value(*made, states_[k], tiles);
    }
    for (size_t k = 0; k < parameters.size(); ++k) {
      const Value* made = inner(now, attrs_.parameter_grads[k]);
      if (made != nullptr) parameters[k].add(*made, tiles);
    }
    for (size_t k = 0; k < inputs_.size(); ++k) {
      const Tensor* made = tensor_in(inner(now, attrs_.input_grads[k]));
      if (made == nullptr) continue;
      if (std::holds_alternative<std::monostate>(inputs_[k])) {
        Shape shape{static_cast<int64_t>(length)};
        for (const int64_t dim : made->shape()) shape.push_back(dim);
        inputs_[k] = Tensor::zeros(made->dtype(), shape);
      }
      const auto row = static_cast<int64_t>(t);
      std::get_if<Tensor>(&inputs_[k])->rows(row, row + 1).copy_from(*made);
    }
  }

  void finish(const std::string& slot, std::vector<Value>& values) {
    const auto& names = op_.op->input(slot);
    const auto& grads = op_.op->output(grad_name(slot));
    for (size_t k = 0; k < grads.size(); ++k) {
      if (grads[k].empty()) continue;
      Value value = std::move(values[k]);
      if (std::holds_alternative<std::monostate>(value)) value = zeros_like(outer_.find(names[k]));
      put(grads[k], std::move(value));
    }
  }

  RecurrentGradAttrs attrs_;
  std::vector<Value> states_, inputs_;
};

}  // namespace

BlockHistory& BlockGradRunner::history() const {
  Value* value = outer_.find(scopes_);
  auto* raw = value == nullptr ? nullptr : std::get_if<Raw>(value);
  auto* found =
      raw == nullptr ? nullptr : std::any_cast<std::shared_ptr<BlockHistory>>(&raw->content);
  if (found != nullptr) return **found;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "the forward op of a block's gradient has not run",
               .where = op_.op->to_string(),
               .expected = "its step scopes",
               .got = "nothing",
               .fix = "keep the forward op in the program"});
}

Workspace& BlockGradRunner::workspace_of(BlockHistory& history, size_t i) {
  if (workspaces_.size() <= i) workspaces_.resize(i + 1);
  Entry& entry = workspaces_[i];
  Workspace* forward = history.iterations[i].get();
  if (entry.forward != forward) {
    entry.workspace = std::make_unique<Workspace>(op_.block, outer_.scope(), forward);
    entry.forward = forward;
  }
  return *entry.workspace;
}

Value* BlockGradRunner::inner(Workspace& workspace, const std::string& name) const {
  const int at = name.empty() ? -1 : op_.block->find_var(name);
  return at < 0 ? nullptr : &workspace.value(at);
}

void BlockGradRunner::forget(Workspace& workspace, const std::string& name) const {
  if (Value* value = inner(workspace, name)) *value = std::monostate();
}

void BlockGradRunner::put(const std::string& name, Value value) const {
  if (Value* out = name.empty() ? nullptr : outer_.find(name)) *out = std::move(value);
}

std::unique_ptr<BlockRunner> BlockGradRunner::make(Workspace& outer, const PlanOp& op) {
  const std::string& type = op.op->type;
  if (type == "while_grad") {
    return std::make_unique<LoopGradRunner>(outer, op, "StepScopes", "X");
  }
  if (type == "conditional_block_grad") {
    return std::make_unique<LoopGradRunner>(outer, op, "Scope", "Input");
  }
  if (type == "recurrent_grad") return std::make_unique<RecurrentGradRunner>(outer, op);
  return nullptr;
}

}  // namespace fleet::fluid
