#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/block/block_grad_runner_impl.h"
#include "fluid/executor/block/block_history_impl.h"
#include "fluid/executor/block/block_runner_impl.h"
#include "fluid/ops/control/control_flow.h"

namespace fleet::fluid {
namespace {

// A block that runs forward, some number of times.
class ForwardRunner : public BlockRunner {
 public:
  ForwardRunner(Workspace& outer, const PlanOp& op, std::string_view scopes_slot)
      : outer_(outer), op_(op), history_(std::make_shared<BlockHistory>()) {
    const auto& names = op.op->output(scopes_slot);
    if (names.empty()) return;
    scopes_ = names.front();
    keeps_ =
        std::any_of(outer.plan().ops().begin(), outer.plan().ops().end(), [&](const PlanOp& other) {
          const auto inputs = other.op->input_names();
          return std::find(inputs.begin(), inputs.end(), scopes_) != inputs.end();
        });
    for (const PlanVar& var : op.block->vars()) {
      if (var.outer && var.written) history_->rewritten.push_back(var.name);
    }
  }

 protected:
  void begin() {
    history_->count = 0;
    history_->before.clear();
    if (scopes_.empty()) return;
    if (Value* value = outer_.find(scopes_)) *value = Raw{std::any(history_)};
  }

  // The workspace of the next iteration: one of its own when a gradient will look at it.
  Workspace& next() {
    const size_t at = keeps_ ? history_->count : 0;
    if (history_->iterations.size() <= at) {
      history_->iterations.push_back(
          std::make_unique<Workspace>(op_.block, outer_.scope(), &outer_));
    }
    return *history_->iterations[at];
  }

  void run_next(const Workspace::Step& step, int shard) {
    Workspace& workspace = next();
    if (keeps_) keep_values();
    workspace.run_inner(step_of_iteration(step, history_->count), shard);
    ++history_->count;
  }

  void end() {
    if (keeps_) keep_values();
  }

  Tensor& outer_tensor(const std::string& name) const {
    return need_tensor(outer_.find(name), *op_.op, name);
  }

  Workspace& outer_;
  const PlanOp& op_;
  std::shared_ptr<BlockHistory> history_;
  std::string scopes_;
  bool keeps_ = false;

 private:
  void keep_values() {
    auto& values = history_->before.emplace_back();
    for (const std::string& name : history_->rewritten) {
      const Tensor* now = tensor_in(outer_.find(name));
      values.push_back(now == nullptr ? Tensor() : now->clone());
    }
  }
};

bool is_true(const Tensor& condition, const Operator& op, const std::string& name) {
  if (condition.dtype() == DType::kBool && condition.numel() == 1) {
    return condition.item<bool>();
  }
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "a condition is not one boolean",
               .where = str_cat("op '", op.type, "', variable '", name, "'"),
               .expected = "bool[1]",
               .got = str_cat(dtype_name(condition.dtype()), condition.shape()),
               .fix = "compare, or reduce with reduce_all or reduce_any"});
}

class ConditionalRunner final : public ForwardRunner {
 public:
  ConditionalRunner(Workspace& outer, const PlanOp& op)
      : ForwardRunner(outer, op, "Scope"),
        scalar_(parse_attributes<ConditionalBlockAttrs>(op.op->type, op.op->attrs)
                    .is_scalar_condition) {}

  void run(const Workspace::Step& step, int shard) override {
    begin();
    if (holds()) run_next(step, shard);
    end();
  }

 private:
  bool holds() const {
    const auto& names = op_.op->input("Cond");
    if (scalar_) return is_true(outer_tensor(names.front()), *op_.op, names.front());
    return std::all_of(names.begin(), names.end(),
                       [this](const std::string& name) { return outer_tensor(name).numel() > 0; });
  }

  bool scalar_;
};

class WhileRunner final : public ForwardRunner {
 public:
  WhileRunner(Workspace& outer, const PlanOp& op)
      : ForwardRunner(outer, op, "StepScopes"), condition_(op.op->input("Condition").front()) {}

  void run(const Workspace::Step& step, int shard) override {
    begin();
    while (is_true(outer_tensor(condition_), *op_.op, condition_)) run_next(step, shard);
    end();
  }

 private:
  std::string condition_;
};

class RecurrentRunner final : public ForwardRunner {
 public:
  RecurrentRunner(Workspace& outer, const PlanOp& op)
      : ForwardRunner(outer, op, "step_scopes"),
        attrs_(parse_attributes<RecurrentAttrs>(op.op->type, op.op->attrs)) {}

  void run(const Workspace::Step& step, int shard) override {
    begin();
    const auto& inputs = op_.op->input("inputs");
    const int64_t length = outer_tensor(inputs.front()).shape()[0];
    for (int64_t i = 0; i < length; ++i) {
      const int64_t t = attrs_.reverse ? length - 1 - i : i;
      Workspace& now = next();
      for (const std::string& name : inputs) bind_slice(now, name, t, length);
      for (size_t k = 0; k < attrs_.ex_states.size(); ++k) bind_state(now, k, i);
      run_next(step, shard);
      for (const std::string& name : op_.op->output("outputs")) take(now, name, t, length);
      previous_ = &now;
    }
  }

 private:
  void bind_slice(Workspace& now, const std::string& name, int64_t t, int64_t length) {
    const int at = op_.block->find_var(name);
    if (at < 0) return;  // the block does not look at it
    const Tensor& whole = outer_tensor(name);
    if (whole.shape()[0] != length) {
      throw_error(ErrorCode::kShapeMismatch,
                  {.what = "step inputs have different lengths",
                   .where = str_cat("op 'recurrent', variable '", name, "'"),
                   .expected = str_cat(length, " steps"),
                   .got = whole.shape().to_string(),
                   .fix = "give every step input as many steps"});
    }
    const Shape rest(whole.shape().dims().subspan(1));
    now.value(at) = whole.rows(t, t + 1).reshaped(rest);
  }

  void bind_state(Workspace& now, size_t k, int64_t i) {
    const int at = op_.block->find_var(attrs_.ex_states[k]);
    if (at < 0) return;
    const Tensor& before =
        i == 0 ? outer_tensor(op_.op->input("initial_states")[k])
               : need_tensor(previous_->find(attrs_.states[k]), *op_.op, attrs_.states[k]);
    now.value(at) = before.clone();
  }

  void take(Workspace& now, const std::string& name, int64_t t, int64_t length) {
    const Tensor& made = need_tensor(now.find(name), *op_.op, name);
    Shape shape{length};
    for (const int64_t dim : made.shape()) shape.push_back(dim);
    Value& value = *outer_.find(name);
    if (!std::holds_alternative<Tensor>(value)) value = Tensor();
    Tensor& whole = *std::get_if<Tensor>(&value);
    const bool fits =
        whole.initialized() && whole.dtype() == made.dtype() && whole.shape() == shape;
    if (!fits) whole.reset(made.dtype(), shape, made.place());
    whole.rows(t, t + 1).copy_from(made);
  }

  RecurrentAttrs attrs_;
  Workspace* previous_ = nullptr;
};

}  // namespace

Tensor& need_tensor(Value* value, const Operator& op, const std::string& name) {
  if (Tensor* tensor = tensor_in(value)) return *tensor;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "a variable of a block has no value",
               .where = str_cat("op '", op.type, "', variable '", name, "'"),
               .expected = "a dense tensor",
               .got = "nothing",
               .fix = "write it before the op, or in every path through its block"});
}

std::unique_ptr<BlockRunner> BlockRunner::make(Workspace& outer, int k) {
  const PlanOp& op = outer.plan().ops()[static_cast<size_t>(k)];
  if (op.op->type == "conditional_block") return std::make_unique<ConditionalRunner>(outer, op);
  if (op.op->type == "while") return std::make_unique<WhileRunner>(outer, op);
  if (op.op->type == "recurrent") return std::make_unique<RecurrentRunner>(outer, op);
  if (auto gradient = BlockGradRunner::make(outer, op)) return gradient;
  throw_error(ErrorCode::kNotSupported,
              {.what = "the executor does not know how this op runs its block",
               .where = op.op->to_string(),
               .expected = "conditional_block, while, recurrent, or a gradient of these",
               .got = op.op->type,
               .fix = "leave OpSchema::run_by of an op of your own at RunBy::kKernel or kRuntime"});
}

}  // namespace fleet::fluid
