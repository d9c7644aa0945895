#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/nonfinite.h"
#include "fluid/executor/finite_checks_impl.h"
#include "fluid/kernels/device_kernels.h"
#include "fluid/kernels/functions/nonfinite_word.h"
#include "fluid/tables/lookup/shared_table.h"

namespace fleet::fluid {
namespace {

// The number that an op makes whose role says that it is the loss; -1 for others.
int loss_of(const Plan& plan, const PlanOp& op) {
  if (!plan.sharded() || op.op->role != (OpRole::kForward | OpRole::kLoss)) return -1;
  const auto found = std::find_if(op.outputs.begin(), op.outputs.end(), [&](int i) {
    const VarDesc* desc = i < 0 ? nullptr : plan.vars()[static_cast<size_t>(i)].desc;
    return desc != nullptr && desc->shape.rank() == 1 && desc->shape[0] == 1;
  });
  return found == op.outputs.end() ? -1 : *found;
}

// A device may have written it.
uint32_t take(uint32_t& word) {
  return std::atomic_ref(word).exchange(0);
}

// Of word_of_nonfinite().
double value_of_word(uint32_t word) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (word == word_of_nonfinite(kInfinity)) return kInfinity;
  if (word == word_of_nonfinite(-kInfinity)) return -kInfinity;
  return std::numeric_limits<double>::quiet_NaN();
}

// The first element of a tensor, wherever it is.
template <class T>
T item_of(const Value& value) {
  return std::get<Tensor>(value).copy_to(CPUPlace()).item<T>();
}

// Of the values of rows.
std::optional<double> first_nonfinite_row(const tables::SharedTable& shared) {
  std::optional<double> found;
  shared.reading([&found](const tables::GrowingTable& table) {
    table.scan(0, tables::kBuckets, [&found](const tables::RowView& row) {
      const auto bad = std::find_if_not(row.values.begin(), row.values.end(),
                                        [](float value) { return std::isfinite(value); });
      if (!found && bad != row.values.end()) found = static_cast<double>(*bad);
    });
  });
  return found;
}

std::optional<double> first_nonfinite_of(const Value& value) {
  if (const auto* tensor = std::get_if<Tensor>(&value)) return first_nonfinite(*tensor);
  const auto table = tables::table_of(value);
  return table == nullptr ? std::nullopt : first_nonfinite_row(*table);
}

// Tells the step's watch, if the value is a tensor or a growing table with an element that is not
// finite.
void tell_nonfinite(const Workspace::Step& step, Nonfinite::What what, const std::string& name,
                    const Value* value) {
  const auto found = value == nullptr ? std::nullopt : first_nonfinite_of(*value);
  if (!found) return;
  step.watch->on_nonfinite({.what = what, .variable = name, .value = *found, .step = step.number});
}

}  // namespace

FiniteChecks::FiniteChecks(const Workspace& workspace) : workspace_(workspace) {
  const Plan& plan = workspace.plan();
  if (plan.whole_step()) scaling_ = find_dynamic_loss_scaling(plan.block());
  for (const PlanOp& op : plan.ops()) {
    const int loss = scaling_ ? -1 : loss_of(plan, op);
    losses_.push_back({loss, loss < 0 ? 0 : ++loss_count_});
  }
}

void FiniteChecks::check_outputs(int k, uint64_t step, double written) const {
  const Plan& plan = workspace_.plan();
  const PlanOp& op = plan.ops()[static_cast<size_t>(k)];
  for (const int i : op.outputs) {
    if (i < 0) continue;
    const Value& value = workspace_.value(i);
    const auto* tensor = std::get_if<Tensor>(&value);
    if (tensor == nullptr && std::isfinite(written)) continue;
    const auto found = first_nonfinite_of(value);
    if (!found) continue;
    throw_error(ErrorCode::kNumerics,
                {.what = "a value became infinite or not a number",
                 .where = str_cat("variable '", plan.vars()[static_cast<size_t>(i)].name,
                                  "', written by ", op.op->to_string(), ", in step ", step),
                 .expected = "finite values",
                 .got = tensor != nullptr ? tensor->to_string(8) : shortest(*found),
                 .fix = "lower the learning rate, clip the gradients, or check the data"});
  }
}

// The sum of what was written may be infinite where no element is.
void FiniteChecks::watch(const Workspace::Step& step, int k, double written) const {
  const Plan& plan = workspace_.plan();
  const Loss& loss = losses_[static_cast<size_t>(k)];
  if (loss.var >= 0) watch_loss(step, loss);
  if (scaling_ && plan.ops()[static_cast<size_t>(k)].op == scaling_->shrinks) watch_scaling(step);
  if (std::isfinite(written)) return;
  for (const std::string& name : plan.ops()[static_cast<size_t>(k)].op->output("ParamOut")) {
    tell_nonfinite(step, Nonfinite::What::kParameter, name, workspace_.find(name));
  }
}

void FiniteChecks::watch_scaling(const Workspace::Step& step) const {
  const Value* factor = workspace_.find(scaling_->factor);
  if (factor == nullptr) factor = workspace_.scope().find(scaling_->factor);
  const Value* finite = workspace_.find(scaling_->finite);
  if (factor == nullptr || finite == nullptr) return;
  if (item_of<bool>(*finite) || item_of<float>(*factor) > 1.0f) return;
  tell_nonfinite(step, Nonfinite::What::kGradients, scaling_->gradients,
                 workspace_.find(scaling_->gradients));
}

void FiniteChecks::watch_loss(const Workspace::Step& step, const Loss& loss) const {
  const Value& value = workspace_.value(loss.var);
  const auto* tensor = std::get_if<Tensor>(&value);
  if (tensor != nullptr && tensor->initialized() && !tensor->place().is_cpu()) {
    note_nonfinite_on_device(*tensor, step.nonfinite_words + loss.word, workspace_.stream());
  } else {
    tell_nonfinite(step, Nonfinite::What::kLoss, name_of(loss), &value);
  }
}

const std::string& FiniteChecks::name_of(const Loss& loss) const {
  return workspace_.plan().vars()[static_cast<size_t>(loss.var)].name;
}

void FiniteChecks::watch_words(const Workspace::Step& step) const {
  for (const Loss& loss : losses_) {
    const uint32_t word = loss.var < 0 ? 0 : take(step.nonfinite_words[loss.word]);
    if (word == 0) continue;
    step.watch->on_nonfinite({.what = Nonfinite::What::kLoss,
                              .variable = name_of(loss),
                              .value = value_of_word(word),
                              .step = step.number});
  }
  if (take(step.nonfinite_words[0]) != 0) watch_parameters(step, workspace_.plan());
}

void FiniteChecks::watch_parameters(const Workspace::Step& step, const Plan& plan) const {
  for (const PlanOp& op : plan.ops()) {
    if (op.block != nullptr) watch_parameters(step, *op.block);
    for (const std::string& name : op.op->output("ParamOut")) {
      const Value* made = workspace_.find(name);
      tell_nonfinite(step, Nonfinite::What::kParameter, name,
                     made != nullptr ? made : workspace_.scope().find(name));
    }
  }
}

}  // namespace fleet::fluid
