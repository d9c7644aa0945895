#include "fluid/ops/distributed/trainer_program.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/optimize/dgc.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid {
namespace {

using Names = std::vector<std::string>;

constexpr const char* kSend = "send";
constexpr const char* kReceive = "recv";
constexpr const char* kJoin = "concat";
constexpr const char* kFetchBarrier = "fetch_barrier";
constexpr const char* kRankSum = "c_allreduce_sum";
constexpr const char* kShardSum = "shard_sum";
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

[[noreturn]] void throw_place(const Operator& op, std::string what, std::string expected,
                              std::string got) {
  throw_error(ErrorCode::kInvalidProgram, {.what = std::move(what),
                                           .where = "op " + op.type,
                                           .expected = std::move(expected),
                                           .got = std::move(got),
                                           .fix = "transpile the program for this rank again"});
}

RankPlace checked_place(const Operator& op, RankPlace place) {
  const auto ranks = static_cast<int32_t>(place.endpoints.size());
  if (place.rank >= 0 && place.rank < ranks) return place;
  throw_place(op, "the rank has no endpoint", str_cat("a rank from 0 to ", ranks - 1),
              str_cat(place.rank));
}

RankPlace place_of(const Operator& op, const CGenNcclIdAttrs& attrs) {
  RankPlace place{.rank = attrs.rank, .endpoints = attrs.other_endpoints};
  if (attrs.endpoint.empty() && attrs.other_endpoints.empty()) return place;
  if (attrs.rank < 0 || static_cast<size_t>(attrs.rank) > attrs.other_endpoints.size()) {
    throw_place(op, "the rank has no place among the endpoints",
                str_cat("a rank from 0 to ", attrs.other_endpoints.size()), str_cat(attrs.rank));
  }
  place.endpoints.insert(place.endpoints.begin() + attrs.rank, attrs.endpoint);
  return place;
}

std::optional<RankPlace> place_of(const Operator& op) {
  if (op.type == "c_gen_nccl_id") {
    return place_of(op, parse_attributes<CGenNcclIdAttrs>(op.type, op.attrs));
  }
  if (op.type == "gen_nccl_id") {
    auto attrs = parse_attributes<GenNcclIdAttrs>(op.type, op.attrs);
    return checked_place(op, {.rank = attrs.trainer_id,
                              .endpoints = std::move(attrs.trainers),
                              .executor_reduces = true,
                              .communicators = std::max(attrs.nccl_comm_num, 1),
                              .hierarchical = attrs.use_hierarchical_allreduce,
                              .group_ranks = attrs.hierarchical_allreduce_inter_nranks});
  }
  if (op.type == "c_comm_init_all") return RankPlace{.in_process = true};
  return std::nullopt;
}

bool reduces(const Program& program) {
  const RankProgram rank = read_rank_program(program);
  return !rank.sums.empty() || rank.average != nullptr;
}

}  // namespace

std::optional<RankPlace> read_rank_place(const Program& program) {
  const DistributionInfo& record = program.distribution();
  std::optional<RankPlace> place;
  for (const auto& op : program.global_block().ops()) {
    std::optional<RankPlace> said = place_of(*op);
    if (!said) continue;
    if (place && (place->rank != said->rank || place->endpoints != said->endpoints)) {
      throw_place(*op, "two communicators of the program are not those of the same ranks",
                  str_cat("rank ", place->rank, " of ", join(place->endpoints, ",")),
                  str_cat("rank ", said->rank, " of ", join(said->endpoints, ",")));
    }
    // One op for each ring.
    if (place) said->communicators = place->communicators + 1;
    place = std::move(said);
  }
  if (!place && !record.server_mode && !record.trainers_endpoints.empty()) {
    place = RankPlace{.rank = record.trainer_id,
                      .endpoints = record.trainers_endpoints,
                      .executor_reduces = !reduces(program)};
  }
  if (place && !record.server_mode) place->shards = record.trainers;
  return place;
}

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
  std::map<std::string_view, const Operator*> compressions;  // by what they make
  for (int32_t b = 0; b < program.block_count(); ++b) {
    const Block& block = program.block(b);
    for (const auto& op : block.ops()) {
      if (op->type == kCompress) compressions[op->output("Grad_out").front()] = op.get();
      const bool at_once = op->type == kShardSum;
      if (op->type != kRankSum && !at_once) continue;
      others = others || (!at_once && !has_role(op->role, OpRole::kBackward));
      for (const std::string& name : op->input("X")) {
        const auto made = compressions.find(name);
        rank.sums.push_back(
            {&block.var(name), at_once, made == compressions.end() ? nullptr : made->second});
      }
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

Operator make_rank_average(const Names& variables, const std::string& loss, Names learning_rate) {
  Operator op = make_op(kRankAverage, variables, variables, to_attributes(NoAttrs{}));
  if (!loss.empty()) op.inputs["Loss"] = {loss};
  if (!learning_rate.empty()) op.inputs["LearningRate"] = std::move(learning_rate);
  return op;
}

}  // namespace fleet::fluid
