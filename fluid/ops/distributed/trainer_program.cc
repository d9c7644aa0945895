#include "fluid/ops/distributed/trainer_program.h"

#include <algorithm>
#include <utility>

#include "fluid/ops/distributed/names.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kSend = "send";
constexpr const char* kReceive = "recv";
constexpr const char* kJoin = "concat";
constexpr const char* kFetchBarrier = "fetch_barrier";
constexpr const char* kRankSum = "c_allreduce_sum";
constexpr const char* kRankAverage = "c_local_sgd";

Operator make_op(std::string type, Names inputs, Names outputs, AttributeMap attrs) {
  Operator op;
  op.type = std::move(type);
  op.inputs["X"] = std::move(inputs);
  op.outputs["Out"] = std::move(outputs);
  op.attrs = std::move(attrs);
  op.role = OpRole::kRpc;
  return op;
}

bool is_start_notice(const Operator& op) {
  return op.type == kSend &&
         parse_attributes<SendAttrs>(op.type, op.attrs).send_varnames == Names{kParamInit};
}

// What the op joins the parts to; empty: nothing.
std::string joined(const Operator& op, const Names& parts) {
  const bool joins = op.type == kJoin && op.input("X") == parts &&
                     parse_attributes<ConcatAttrs>(op.type, op.attrs).axis == 0;
  return joins ? op.output("Out").front() : "";
}

}  // namespace

TrainerBlock read_trainer_block(const Block& block) {
  TrainerBlock trainer;
  for (const auto& op : block.ops()) {
    if (op->type == kReceive) trainer.receives.push_back({op.get(), ""});
    if (op->type == kFetchBarrier) trainer.fetch_barrier = true;
    if (is_start_notice(*op)) trainer.start_notice = op.get();
  }
  for (TrainerReceive& receive : trainer.receives) {
    const Names parts = receive.op->output("Out");
    for (const auto& op : block.ops()) {
      std::string whole = joined(*op, parts);
      if (!whole.empty()) receive.whole = std::move(whole);
    }
  }
  return trainer;
}

RankProgram read_rank_program(const Program& program) {
  RankProgram rank;
  bool others = false;
  for (int32_t b = 0; b < program.block_count(); ++b) {
    const Block& block = program.block(b);
    for (const auto& op : block.ops()) {
      if (op->type != kRankSum) continue;
      others = others || !has_role(op->role, OpRole::kBackward);
      for (const std::string& name : op->input("X")) rank.sums.push_back(&block.var(name));
    }
  }
  rank.sums_gradients = !rank.sums.empty() && !others;
  const auto& ops = program.global_block().ops();
  const auto average =
      std::find_if(ops.begin(), ops.end(), [](const auto& op) { return op->type == kRankAverage; });
  if (average != ops.end()) rank.average = average->get();
  return rank;
}

Operator make_receive(Names outputs, AttributeMap attrs) {
  Operator op = make_op(kReceive, {}, std::move(outputs), std::move(attrs));
  op.inputs.clear();
  return op;
}

Operator make_join(Names parts, const std::string& whole) {
  return make_op(kJoin, std::move(parts), {whole}, to_attributes(ConcatAttrs{}));
}

Operator make_send_barrier(SendBarrierAttrs attrs, Names inputs, Names outputs) {
  return make_op("send_barrier", std::move(inputs), std::move(outputs),
                 to_attributes(std::move(attrs)));
}

Operator make_fetch_barrier(FetchBarrierAttrs attrs, Names inputs, Names outputs) {
  return make_op(kFetchBarrier, std::move(inputs), std::move(outputs),
                 to_attributes(std::move(attrs)));
}

Operator make_step_notice(Names rows, Names tables, const std::string& control) {
  SendAttrs attrs;
  attrs.send_varnames = std::move(tables);
  return make_op(kSend, std::move(rows), {control}, to_attributes(std::move(attrs)));
}

Operator make_start_notice(const std::string& control) {
  return make_step_notice({kParamInit}, {kParamInit}, control);
}

Operator make_rank_sum(const std::string& variable, int32_t ring) {
  CAllReduceAttrs attrs;
  attrs.ring_id = ring;
  return make_op(kRankSum, {variable}, {variable}, to_attributes(attrs));
}

Operator make_rank_average(Names variables, const std::string& loss, Names learning_rate) {
  Operator op = make_op(kRankAverage, variables, variables, to_attributes(NoAttrs{}));
  if (!loss.empty()) op.inputs["Loss"] = {loss};
  if (!learning_rate.empty()) op.inputs["LearningRate"] = std::move(learning_rate);
  return op;
}

}  // namespace fleet::fluid
