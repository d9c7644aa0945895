#include "transpiler/collective/local_sgd.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/trainer_program.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/no_attrs.h"
#include "transpiler/training_ops.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::OpRole;
using fluid::Program;
using fluid::VarDesc;
using Names = std::vector<std::string>;

std::string snapshot_of(const std::string& param) {
  return param + "@SNAPSHOT";
}

void declare_snapshot(Block& block, const std::string& param) {
  VarDesc var;
  var.name = snapshot_of(param);
  var.dtype = block.var(param).dtype;
  var.shape = block.var(param).shape;
  var.persistable = true;
  var.stop_gradient = true;
  block.add_var(std::move(var));
}

Operator make(std::string type, Names x, Names y, const std::string& out,
              fluid::AttributeMap attrs) {
  Operator op;
  op.type = std::move(type);
  op.inputs["X"] = std::move(x);
  if (!y.empty()) op.inputs["Y"] = std::move(y);
  op.outputs["Out"] = {out};
  op.attrs = std::move(attrs);
  op.role = OpRole::kOptimize;
  return op;
}

// p = snapshot - p
Operator subtract_from_snapshot(const std::string& param) {
  return make("elementwise_sub", {snapshot_of(param)}, {param}, param,
              fluid::to_attributes(fluid::ElementwiseAttrs{}));
}

bool is_update(const Operator& op) {
  return fluid::has_role(op.role, OpRole::kOptimize) && !op.input("Param").empty() &&
         !op.input("Grad").empty();
}

Names updated_params(const Block& block) {
  Names params;
  for (const auto& op : block.ops()) {
    if (is_update(*op)) params.push_back(op->input("Param").front());
  }
  return params;
}

// Behind which op each parameter is no longer used: what follows an update (Lookahead, averages)
// takes the parameter itself, not its change.
std::vector<Names> by_last_use(const Block& block, const Names& params) {
  std::map<std::string, size_t> last;
  for (const std::string& param : params) last[param] = 0;
  for (size_t i = 0; i < block.op_count(); ++i) {
    for (const Names& names : {block.op(i).input_names(), block.op(i).output_names()}) {
      for (const std::string& name : names) {
        if (const auto found = last.find(name); found != last.end()) found->second = i;
      }
    }
  }
  std::vector<Names> used(block.op_count());
  for (const std::string& param : params) used[last.at(param)].push_back(param);
  return used;
}

// After its last use in the step a parameter becomes its change, summed over the ranks. Rings are
// assigned from the last one backwards.
void insert_change_sums(Program& program, const CollectiveOptions& options) {
  Block& block = program.global_block();
  const Names params = updated_params(block);
  const std::vector<Names> used = by_last_use(block, params);
  auto left = params.size();
  fluid::OpList rewritten;
  const auto append = [&rewritten](Operator op) { rewritten.emplace_back(std::move(op)); };
  size_t at = 0;
  for (auto& op : block.take_ops()) {
    rewritten.push_back(std::move(op));
    for (const std::string& param : used[at++]) {
      declare_snapshot(block, param);
      append(subtract_from_snapshot(param));
      append(
          make("c_sync_calc_stream", {param}, {}, param, fluid::to_attributes(fluid::NoAttrs{})));
      const auto ring = static_cast<int32_t>(--left % static_cast<size_t>(options.rings));
      Operator sum = fluid::make_rank_sum(param, ring);
      sum.role = OpRole::kOptimize;
      append(std::move(sum));
    }
  }
  block.set_ops(std::move(rewritten));
}

void append_averages(Program& program, const CollectiveOptions& options) {
  Block& block = program.global_block();
  const Names params = updated_params(block);
  if (params.empty()) return;
  for (int ring = 0; ring < options.rings; ++ring) {
    const fluid::CSyncCommStreamAttrs attrs{.ring_id = ring};
    block.append_op(make("c_sync_comm_stream", {params.front()}, {}, params.front(),
                         fluid::to_attributes(attrs)));
  }
  for (const std::string& param : params) {
    fluid::ScaleAttrs attrs;
    attrs.scale = 1.0 / options.nranks;
    block.append_op(make("scale", {param}, {}, param, fluid::to_attributes(attrs)));
    block.append_op(subtract_from_snapshot(param));
    block.append_op(
        make("assign", {param}, {}, snapshot_of(param), fluid::to_attributes(fluid::NoAttrs{})));
  }
}

// Of every parameter, as the programs that ours are compared with do.
void take_snapshots(Program& startup) {
  Block& block = startup.global_block();
  for (const VarDesc* param : block.parameters()) {
    declare_snapshot(block, param->name);
    Operator assign = make("assign", {param->name}, {}, snapshot_of(param->name),
                           fluid::to_attributes(fluid::NoAttrs{}));
    assign.role = OpRole::kForward;
    block.append_op(std::move(assign));
  }
}

std::string loss_of(const Block& block) {
  for (const auto& op : block.ops()) {
    if (op->role == (OpRole::kForward | OpRole::kLoss)) return op->output_names().front();
  }
  return {};
}

void append_scheduled_average(Program& program) {
  Block& block = program.global_block();
  Names rate;
  for (const auto& update : block.ops()) {
    if (rate.empty() && is_update(*update)) rate = update->input("LearningRate");
  }
  Operator op = fluid::make_rank_average(updated_params(block), loss_of(block), std::move(rate));
  op.role = OpRole::kOptimize;
  block.append_op(std::move(op));
}

void check_shards(const CollectiveOptions& options) {
  if (options.shards == options.nranks) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "LocalSGD has one logical shard for each rank",
               .where = "transpile, logical_shards; DistributeTranspilerConfig.collective_mode",
               .expected = str_cat(options.nranks, " with collective_mode 'local_sgd'"),
               .got = str_cat(options.shards),
               .fix = "leave logical_shards out, or use collective_mode 'grad_allreduce'"});
}

}  // namespace

ProgramPair make_local_sgd_programs(const Program& main, const Program& startup,
                                    const CollectiveOptions& options, const PassRunner& runner) {
  check_shards(options);
  refuse_compressed_gradients(main, "LocalSGD");
  ProgramPair pair{.main = main, .startup = startup};
  record_collective(pair.main, options);
  record_collective(pair.startup, options);
  if (options.nranks == 1) return pair;
  std::vector<Pass> startup_passes = collective_startup_passes(options);
  if (options.scheduled) {
    const std::array passes = {Pass{"append_scheduled_average",
                                    "The ranks average when their schedule says so.",
                                    append_scheduled_average}};
    runner.run(pair.main, passes);
  } else {
    const std::array passes = {
        Pass{"insert_change_sums", "What each parameter changed by is summed over the ranks.",
             [&options](Program& program) { insert_change_sums(program, options); }},
        Pass{"append_averages", "Every parameter takes the mean change.",
             [&options](Program& program) { append_averages(program, options); }},
    };
    runner.run(pair.main, passes);
    startup_passes.push_back(
        {"take_snapshots", "Changes count from the first parameters.", take_snapshots});
  }
  runner.run(pair.startup, startup_passes);
  return pair;
}

}  // namespace fleet::transpiler
