#include <algorithm>
#include <set>

#include "base/process/tile_pool.h"
#include "fluid/executor/plan/plan_rows_impl.h"

namespace fleet::fluid {
namespace {

bool is_update(const PlanData& plan, const PlanOp& op) {
  if (op.op->output("ParamOut").empty()) return false;
  return std::all_of(op.outputs.begin(), op.outputs.end(), [&plan](int i) {
    return i < 0 || plan.vars[static_cast<size_t>(i)].in_scope;
  });
}

bool has_elements(const PlanData& plan, int var, int64_t count) {
  return var >= 0 && plan.vars[static_cast<size_t>(var)].desc->shape.numel() == count;
}

// What is done to each gradient before the updates, by clips and loss scaling: times or over a
// number, and the sum of all elements.
bool is_of_gradients(const PlanData& plan, const PlanOp& op) {
  if (!has_role(op.op->role, OpRole::kOptimize) || op.outputs.size() != 1) return false;
  const auto is_float = [&plan](int i) {
    const VarDesc* desc = i < 0 ? nullptr : plan.vars[static_cast<size_t>(i)].desc;
    return desc != nullptr && desc->kind == VarKind::kLodTensor && desc->dtype == DType::kFloat32 &&
           desc->shape.numel() >= 0;
  };
  if (!std::all_of(op.inputs.begin(), op.inputs.end(), is_float)) return false;
  if (!is_float(op.outputs.front())) return false;
  const std::string& type = op.op->type;
  if (type == "reduce_sum") return has_elements(plan, op.outputs.front(), 1);
  const bool scales = type == "elementwise_mul" || type == "elementwise_div";
  return scales && has_elements(plan, op.inputs[1], 1);
}

// Of kernels on a device, which wait for nothing and may be done as one.
bool is_of_row(const PlanData& plan, const PlanOp& op) {
  if (op.place.is_cpu() || op.copies || op.block != nullptr || op.communication) return false;
  if (op.schema->run_by != RunBy::kKernel || op.fetches_table || !op.waits.empty()) return false;
  return is_update(plan, op) || is_of_gradients(plan, op);
}

// Of a lookup, of the gradient of one, or an update, on this host, of a table or a small parameter:
// a large one is better shared by its elements.
bool is_side_by_side(const PlanData& plan, const PlanOp& op) {
  const OpSchema& schema = *op.schema;
  const bool updates = !op.op->output("ParamOut").empty();
  if (!updates && !schema.gives_table_rows && schema.table_gradient_slot.empty()) return false;
  if (!op.place.is_cpu() || op.copies || op.block != nullptr || op.communication) return false;
  if (schema.run_by != RunBy::kKernel || op.fetches_table || !op.waits.empty()) return false;
  const auto suits = [&plan](int i) {
    if (i < 0) return true;
    const VarDesc* desc = plan.vars[static_cast<size_t>(i)].desc;
    return desc != nullptr &&
           (desc->kind == VarKind::kLodTensor || desc->kind == VarKind::kSelectedRows);
  };
  if (!std::all_of(op.inputs.begin(), op.inputs.end(), suits)) return false;
  if (!std::all_of(op.outputs.begin(), op.outputs.end(), suits)) return false;
  if (schema.gives_table_rows) return true;
  const auto& gradients = updates ? op.op->input("Grad") : op.op->outputs.begin()->second;
  if (gradients.size() != 1) return false;
  const auto found = plan.index.find(gradients.front());
  if (found == plan.index.end()) return false;
  const VarDesc& desc = *plan.vars[static_cast<size_t>(found->second)].desc;
  return desc.kind == VarKind::kSelectedRows || desc.shape.numel() < 2 * Tiles::elements;
}

// What ops in a row touch.
class Row {
 public:
  explicit Row(const PlanData& plan) : plan_(plan) {}

  // True when the op depends on nothing that the row's do, and they not on it.
  bool takes(const PlanOp& op) const {
    const auto among = [this](const std::set<int>& places) {
      return [this, &places](int i) { return i >= 0 && places.contains(place_of(i)); };
    };
    return std::none_of(op.inputs.begin(), op.inputs.end(), among(written_)) &&
           std::none_of(op.outputs.begin(), op.outputs.end(), among(written_)) &&
           std::none_of(op.outputs.begin(), op.outputs.end(), among(read_));
  }
  void add(const PlanOp& op) {
    for (const int i : op.inputs) {
      if (i >= 0) read_.insert(place_of(i));
    }
    for (const int i : op.outputs) {
      if (i >= 0) written_.insert(place_of(i));
    }
  }
  void clear() {
    read_.clear();
    written_.clear();
  }

 private:
  // Variables with the same buffer are at one place.
  int place_of(int var) const {
    const int buffer = plan_.vars[static_cast<size_t>(var)].buffer;
    return buffer < 0 ? var : -1 - buffer;
  }

  const PlanData& plan_;
  std::set<int> read_;
  std::set<int> written_;
};

}  // namespace

void join_rows(PlanData& plan) {
  Row row(plan);
  for (size_t k = 0; k < plan.ops.size(); ++k) {
    const PlanOp& op = plan.ops[k];
    if (!is_of_row(plan, op)) continue;
    PlanOp* const before = k == 0 ? nullptr : &plan.ops[k - 1];
    const bool follows =
        before != nullptr && is_of_row(plan, *before) && before->op->type == op.op->type;
    if (follows && row.takes(op)) {
      before->with_next = true;
    } else {
      row.clear();
    }
    row.add(op);
  }
}

void find_side_by_side(PlanData& plan) {
  Row row(plan);
  PlanOp* first = nullptr;
  for (PlanOp& op : plan.ops) {
    if (!is_side_by_side(plan, op)) {
      first = nullptr;
      continue;
    }
    if (first == nullptr || !row.takes(op)) {
      row.clear();
      first = &op;
    }
    row.add(op);
    op.before = first->beside++;
  }
}

}  // namespace fleet::fluid
