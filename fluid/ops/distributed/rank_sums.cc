#include "fluid/ops/distributed/rank_sums.h"

#include <utility>
#include <vector>

#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/trainer_program.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/optimize/dgc.h"

namespace fleet::fluid {
namespace {

Operator in_place(std::string type, const std::string& var, AttributeMap attrs, OpRole role) {
  Operator op;
  op.type = std::move(type);
  op.inputs["X"] = {var};
  op.outputs["Out"] = {var};
  op.attrs = std::move(attrs);
  op.role = role;
  return op;
}

// The gradients that an op of backward finishes.
std::vector<std::string> finished_gradients(const Operator& op) {
  std::vector<std::string> gradients;
  if (!has_role(op.role, OpRole::kBackward)) return gradients;
  for (size_t i = 1; i < op.role_var.size(); i += 2) gradients.push_back(op.role_var[i]);
  return gradients;
}

// All-reduces of one op: the op waits once, and the last of its gradients goes first.
void emit_all_reduce(const std::vector<std::string>& gradients, int last_ring, int rings,
                     OpList& out) {
  out.emplace_back(make_sync_calc_stream(gradients.front()));
  int ring = last_ring;
  for (auto gradient = gradients.rbegin(); gradient != gradients.rend(); ++gradient) {
    Operator sum = make_rank_sum(*gradient, ring);
    sum.role = OpRole::kBackward;
    out.emplace_back(std::move(sum));
    ring = (ring + rings - 1) % rings;
  }
}

}  // namespace

bool is_loss_gradient(const Operator& op) {
  return op.role == (OpRole::kBackward | OpRole::kLoss);
}

void scale_loss_gradient(Program& program, double factor) {
  Block& block = program.global_block();
  OpList rewritten;
  for (auto& op : block.take_ops()) {
    rewritten.push_back(std::move(op));
    if (rewritten.back()->type == kCompress) {
      Operator& compress = rewritten.back().edit();
      auto attrs = parse_attributes<DgcAttrs>(compress.type, compress.attrs);
      attrs.grad_scale *= factor;
      compress.attrs = to_attributes(attrs);
    }
    if (!is_loss_gradient(*rewritten.back())) continue;
    ScaleAttrs attrs;
    attrs.scale = factor;
    const std::string gradient = rewritten.back()->output_names().front();
    rewritten.emplace_back(in_place("scale", gradient, to_attributes(attrs), OpRole::kBackward));
  }
  block.set_ops(std::move(rewritten));
}

void insert_rank_sums(Program& program, int rings) {
  Block& block = program.global_block();
  auto ops = block.take_ops();
  // Rings are assigned from the end of the program, so count what follows each op.
  std::vector<size_t> assigned(ops.size(), 0);
  size_t total = 0;
  for (size_t i = ops.size(); i-- > 0;) {
    total += finished_gradients(*ops[i]).size();
    assigned[i] = total;
  }
  std::string first_gradient;
  bool synchronised = false;
  OpList rewritten;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (!synchronised && !first_gradient.empty() && has_role(ops[i]->role, OpRole::kOptimize)) {
      for (int ring = 0; ring < rings; ++ring) {
        rewritten.emplace_back(make_sync_comm_stream(first_gradient, ring, OpRole::kBackward));
      }
      synchronised = true;
    }
    const auto gradients = finished_gradients(*ops[i]);
    rewritten.push_back(std::move(ops[i]));
    if (gradients.empty()) continue;
    if (first_gradient.empty()) first_gradient = gradients.back();
    const auto last_ring = static_cast<int>((assigned[i] - 1) % static_cast<size_t>(rings));
    emit_all_reduce(gradients, last_ring, rings, rewritten);
  }
  block.set_ops(std::move(rewritten));
}

Operator make_sync_calc_stream(const std::string& variable) {
  return in_place("c_sync_calc_stream", variable, to_attributes(NoAttrs{}), OpRole::kBackward);
}

Operator make_sync_comm_stream(const std::string& variable, int32_t ring, OpRole role) {
  return in_place("c_sync_comm_stream", variable,
                  to_attributes(CSyncCommStreamAttrs{.ring_id = ring}), role);
}

Operator make_rank_broadcast(const std::string& variable, int32_t ring) {
  CBroadcastAttrs attrs;
  attrs.ring_id = ring;
  return in_place("c_broadcast", variable, to_attributes(attrs), OpRole::kForward);
}

}  // namespace fleet::fluid
