#include <algorithm>
#include <utility>

#include "fluid/executor/plan/plan_places_impl.h"

namespace fleet::fluid {
namespace {

// A loss is what one op makes, and no copy of it.
OpRole role_of_copy(OpRole role) {
  if (!has_role(role, OpRole::kLoss)) return role;
  return has_role(role, OpRole::kBackward) ? OpRole::kBackward : OpRole::kForward;
}

bool contains(const std::vector<int>& vars, int var) {
  return std::find(vars.begin(), vars.end(), var) != vars.end();
}

bool share(const std::vector<int>& a, const std::vector<int>& b) {
  return std::any_of(a.begin(), a.end(), [&b](int var) { return var >= 0 && contains(b, var); });
}

// Whether the runtime is the first that looks into a variable behind op k, or into views of it, and
// nobody else does so before the runtime has done its part: who reads what the runtime writes, or
// writes what it reads, waits for it.
bool is_for_runtime(const PlanData& plan, size_t k, int var) {
  std::vector<int> seen = {var};
  bool taken = false;
  for (size_t i = k + 1; i < plan.ops.size(); ++i) {
    const PlanOp& op = plan.ops[i];
    const bool reads = share(op.inputs, seen) || share(op.block_vars, seen);
    const bool writes = share(op.outputs, seen);
    if (!reads && !writes) continue;
    if (op.communication) {
      taken = true;
      if (writes) return true;
    } else if (reads && op.schema->makes_views) {
      seen.insert(seen.end(), op.outputs.begin(), op.outputs.end());
    } else if (reads || !taken) {
      return false;
    }
  }
  return taken;
}

const OpSchema& copy_schema() {
  static const OpSchema kSchema = {.type = "memcpy"};
  return kSchema;
}

}  // namespace

PlacePlanner::State& PlacePlanner::state(int var) {
  if (states_.size() < plan_.vars.size()) states_.resize(plan_.vars.size());
  return states_[static_cast<size_t>(var)];
}

void PlacePlanner::place(PlanOp& planned) {
  planned.place = places_.of(*plan_.block, *planned.op);
  if (plan_.key.place.is_cpu() || planned.schema->only_orders) return;
  if (planned.block != nullptr) {
    // The op's block finds what it shares with this one by name, at home.
    for (const auto* vars : {&planned.inputs, &planned.outputs, &planned.block_vars}) {
      for (const int i : *vars) {
        if (i >= 0) come_home(i);
      }
    }
    return;
  }
  size_t at = 0;
  for (const auto& [slot, names] : planned.op->inputs) {
    const Place place = places_.of_input(*plan_.block, *planned.op, slot);
    for (size_t i = 0; i < names.size(); ++i, ++at) {
      planned.inputs[at] = read(planned.inputs[at], place, planned.op->role);
    }
  }
  for (int& i : planned.outputs) {
    if (i >= 0) i = write(i, planned);
  }
}

void PlacePlanner::meet(bool feeds) {
  for (int i = 0; i < static_cast<int>(states_.size()); ++i) {
    come_home(i);
    if (feeds && state(i).copy >= 0 && is_fed(i)) state(i).at = At::kBoth;
  }
}

// What is fed comes to both places.
bool PlacePlanner::is_fed(int var) const {
  return plan_.vars[static_cast<size_t>(var)].feed >= 0;
}

void PlacePlanner::come_home(int var) {
  const State now = state(var);
  if (now.at == At::kOther) add_copy(now.copy, var, now.role);
  state(var).at = At::kHome;
}

int PlacePlanner::read(int var, const Place& place, OpRole role) {
  const State now = state(var);
  if (plan_.vars[static_cast<size_t>(var)].place == place) {
    if (now.at != At::kOther) return var;
    add_copy(now.copy, var, now.role);
    state(var).at = At::kBoth;
    return var;
  }
  const int copy = copy_of(var);
  if (now.at != At::kHome) return copy;
  state(var).at = At::kBoth;
  const bool as_fed = now.copy < 0 && is_fed(var) && !plan_.vars[static_cast<size_t>(var)].written;
  if (!as_fed) add_copy(var, copy, role);
  return copy;
}

int PlacePlanner::write(int var, const PlanOp& writer) {
  const bool home = plan_.vars[static_cast<size_t>(var)].place == writer.place;
  const int written = home ? var : copy_of(var);
  state(var).at = home ? At::kHome : At::kOther;
  state(var).role = writer.op->role;
  return written;
}

int PlacePlanner::copy_of(int var) {
  if (state(var).copy >= 0) return state(var).copy;
  const auto copy = static_cast<int>(plan_.vars.size());
  const PlanVar& home = plan_.vars[static_cast<size_t>(var)];
  plan_.vars.push_back({.name = home.name,
                        .desc = home.desc,
                        .place = home.place.is_cpu() ? plan_.key.place : CPUPlace(),
                        .copy_of = var,
                        .feed = home.feed,
                        .written = true,
                        .fed_and_written = home.fed_and_written});
  state(var).copy = copy;
  return copy;
}

void PlacePlanner::add_copy(int from, int to, OpRole role) {
  const PlanVar& var = plan_.vars[static_cast<size_t>(to)];
  auto op = std::make_shared<Operator>();
  op->type = copy_schema().type;
  op->inputs["X"] = {var.name};
  op->outputs["Out"] = {var.name};
  op->attrs["dst_place"] = var.place.to_string();
  op->role = role_of_copy(role);
  plan_.ops.push_back({.op = op.get(),
                       .schema = &copy_schema(),
                       .place = plan_.key.place,
                       .copies = true,
                       .inputs = {from},
                       .outputs = {to}});
  plan_.vars[static_cast<size_t>(to)].written = true;
  plan_.copies.push_back(std::move(op));
}

void find_staged(PlanData& plan) {
  for (size_t k = 0; k < plan.ops.size(); ++k) {
    PlanOp& op = plan.ops[k];
    if (!op.copies) continue;
    const int from = op.inputs.front();
    const int to = op.outputs.front();
    const PlanVar& made = plan.vars[static_cast<size_t>(to)];
    if (made.place.is_cpu()) {
      op.staged = !made.in_scope && made.is_dense() && is_for_runtime(plan, k, to);
    } else {
      op.staged = std::any_of(plan.ops.begin(), plan.ops.end(), [from](const PlanOp& other) {
        return other.communication && contains(other.outputs, from);
      });
    }
  }
}

}  // namespace fleet::fluid
