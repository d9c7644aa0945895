#include <algorithm>
#include <set>

#include "fluid/executor/plan/plan_shards_impl.h"

namespace fleet::fluid {
namespace {

// Only updates change it, also where a forward op names it among its outputs (W_Out of
// hierarchical_sigmoid).
bool is_trained(const PlanVar& var) {
  return var.desc != nullptr && var.desc->is_parameter && var.desc->trainable;
}

// What the ops [begin, end) write, or read.
std::set<int> touched(const PlanData& plan, int begin, int end, std::vector<int> PlanOp::*list) {
  std::set<int> all;
  for (int k = begin; k < end; ++k) {
    const auto& vars = plan.ops[static_cast<size_t>(k)].*list;
    all.insert(vars.begin(), vars.end());
  }
  all.erase(-1);
  return all;
}

}  // namespace

bool written_in_shard(const PlanData& plan, int i) {
  for (int k = plan.head; k < plan.tail; ++k) {
    const auto& outputs = plan.ops[static_cast<size_t>(k)].outputs;
    if (std::find(outputs.begin(), outputs.end(), i) != outputs.end()) return true;
  }
  return false;
}

void find_per_shard(PlanData& plan) {
  std::set<int> seen;
  for (size_t k = static_cast<size_t>(plan.tail); k < plan.ops.size(); ++k) {
    if (plan.ops[k].communication) continue;
    for (const int i : plan.ops[k].inputs) {
      const PlanVar& read = plan.vars[static_cast<size_t>(i)];
      const bool floating = read.desc == nullptr || is_floating(read.desc->dtype);
      const bool rows = read.desc != nullptr && read.desc->kind == VarKind::kSelectedRows;
      if (read.in_scope || read.feed >= 0 || !floating || (!read.is_dense() && !rows)) continue;
      if (seen.insert(i).second && written_in_shard(plan, i)) plan.per_shard.push_back(i);
    }
  }
}

void find_statistics(PlanData& plan) {
  if (!plan.sharded) return;
  std::set<int> seen;
  for (int k = plan.head; k < plan.tail; ++k) {
    const PlanOp& op = plan.ops[static_cast<size_t>(k)];
    if (op.communication || !has_role(op.op->role, OpRole::kForward)) continue;
    for (const int i : op.outputs) {
      if (i < 0) continue;
      const PlanVar& var = plan.vars[static_cast<size_t>(i)];
      if (!var.in_scope || var.desc == nullptr) continue;
      const bool averaged = is_floating(var.desc->dtype) && var.is_dense() && !is_trained(var);
      if (averaged && seen.insert(i).second) plan.statistics.push_back(i);
    }
  }
}

void find_whether_shards_are_apart(PlanData& plan) {
  const int head = plan.head;
  const int tail = plan.tail;
  const auto& ops = plan.ops;
  const bool plain = std::none_of(ops.begin() + head, ops.begin() + tail,
                                  [](const PlanOp& op) { return op.block != nullptr; });
  if (!plan.sharded || plan.communicates || !plain) return;
  const auto contains = [](const std::vector<int>& list, int i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  std::set<int> later = touched(plan, tail, static_cast<int>(ops.size()), &PlanOp::inputs);
  for (const PlanFetch& fetch : plan.fetches) {
    if (fetch.kind == PlanFetch::Kind::kAtEnd) later.insert(fetch.var);
  }
  for (const int i : touched(plan, head, tail, &PlanOp::outputs)) {
    const PlanVar& var = plan.vars[static_cast<size_t>(i)];
    const bool joined = contains(plan.statistics, i) || contains(plan.per_shard, i);
    if (!joined && !is_trained(var) && (var.in_scope || later.contains(i))) return;
  }
  const std::set<int> before = touched(plan, 0, head, &PlanOp::outputs);
  const std::set<int> read = touched(plan, head, tail, &PlanOp::inputs);
  plan.shards_are_apart = std::none_of(read.begin(), read.end(), [&](int i) {
    return before.contains(i) && !plan.vars[static_cast<size_t>(i)].in_scope;
  });
}

}  // namespace fleet::fluid
