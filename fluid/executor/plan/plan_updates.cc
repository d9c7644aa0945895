#include <algorithm>
#include <set>

#include "fluid/executor/plan/plan_updates_impl.h"

namespace fleet::fluid {
namespace {

// A kernel's update of parameters on a device, which waits for nothing.
bool is_update(const PlanData& plan, const PlanOp& op) {
  if (op.place.is_cpu() || op.copies || op.block != nullptr || op.communication) return false;
  if (op.schema->run_by != RunBy::kKernel || op.fetches_table || !op.waits.empty()) return false;
  if (op.op->output("ParamOut").empty()) return false;
  return std::all_of(op.outputs.begin(), op.outputs.end(), [&plan](int i) {
    return i < 0 || plan.vars[static_cast<size_t>(i)].in_scope;
  });
}

// Variables that updates in a row touch.
class Row {
 public:
  // True when the op depends on nothing that the row's do, and they not on it.
  bool takes(const PlanOp& op) const {
    const auto among = [](const std::set<int>& vars) {
      return [&vars](int i) { return vars.contains(i); };
    };
    return std::none_of(op.inputs.begin(), op.inputs.end(), among(written_)) &&
           std::none_of(op.outputs.begin(), op.outputs.end(), among(written_)) &&
           std::none_of(op.outputs.begin(), op.outputs.end(), among(read_));
  }
  void add(const PlanOp& op) {
    read_.insert(op.inputs.begin(), op.inputs.end());
    for (const int i : op.outputs) {
      if (i >= 0) written_.insert(i);
    }
  }
  void clear() {
    read_.clear();
    written_.clear();
  }

 private:
  std::set<int> read_;
  std::set<int> written_;
};

}  // namespace

void join_updates(PlanData& plan) {
  Row row;
  for (size_t k = 0; k < plan.ops.size(); ++k) {
    const PlanOp& op = plan.ops[k];
    if (!is_update(plan, op)) continue;
    PlanOp* const before = k == 0 ? nullptr : &plan.ops[k - 1];
    const bool follows =
        before != nullptr && is_update(plan, *before) && before->op->type == op.op->type;
    if (follows && row.takes(op)) {
      before->with_next = true;
    } else {
      row.clear();
    }
    row.add(op);
  }
}

}  // namespace fleet::fluid
