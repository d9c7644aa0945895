#include "transpiler/collective/collective_program.h"

#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/ops/distributed/rank_sums.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::OpRole;
using fluid::Program;
using fluid::VarDesc;
using Names = std::vector<std::string>;
using fluid::OpList;

void scale_loss_gradient(Program& program, const CollectiveOptions& options) {
  fluid::scale_loss_gradient(program, 1.0 / options.shards);
}

void insert_all_reduces(Program& program, const CollectiveOptions& options) {
  fluid::insert_rank_sums(program, options.rings);
}

std::vector<std::string> others(const CollectiveOptions& options) {
  std::vector<std::string> endpoints;
  for (size_t i = 0; i < options.endpoints.size(); ++i) {
    if (i != static_cast<size_t>(options.rank)) endpoints.push_back(options.endpoints[i]);
  }
  return endpoints;
}

std::string add_id_var(Block& block, std::string name) {
  VarDesc var;
  var.name = std::move(name);
  var.kind = fluid::VarKind::kRaw;
  var.typed = false;
  var.persistable = true;
  return block.add_var(std::move(var)).name;
}

void init_communicators(Program& startup, const CollectiveOptions& options) {
  Block& block = startup.global_block();
  for (int ring = 0; ring < options.rings; ++ring) {
    const std::string id = add_id_var(block, str_cat("nccl_id_", ring));
    Operator generate;
    generate.type = "c_gen_nccl_id";
    generate.outputs["Out"] = {id};
    generate.attrs =
        fluid::to_attributes(fluid::CGenNcclIdAttrs{.endpoint = options.current_endpoint,
                                                    .other_endpoints = others(options),
                                                    .rank = options.rank});
    block.append_op(std::move(generate));
    Operator init;
    init.type = "c_comm_init";
    init.inputs["X"] = {id};
    init.attrs = fluid::to_attributes(
        fluid::CCommInitAttrs{.nranks = options.nranks, .rank = options.rank, .ring_id = ring});
    block.append_op(std::move(init));
  }
}

void broadcast_parameters(Program& startup, const CollectiveOptions& options) {
  Block& block = startup.global_block();
  int ring = 0;
  std::string last;
  for (const VarDesc* param : block.parameters()) {
    block.append_op(fluid::make_rank_broadcast(param->name, ring));
    ring = (ring + 1) % options.rings;
    last = param->name;
  }
  if (last.empty()) return;
  for (int i = 0; i < options.rings; ++i) {
    block.append_op(fluid::make_sync_comm_stream(last, i, OpRole::kForward));
  }
}

std::string nccl_id_name(std::string_view prefix, int index) {
  return index == 0 && prefix.empty() ? fluid::kNcclId : str_cat(prefix, "NCCLID_", index);
}

void append_gen_nccl_id(Program& startup, const Nccl2Options& options) {
  Block& block = startup.global_block();
  for (int i = 0; i < options.nccl_comm_num; ++i) add_id_var(block, nccl_id_name("", i));
  if (options.use_hierarchical_allreduce) {
    for (int i = 0; i < options.nccl_comm_num; ++i) {
      add_id_var(block, nccl_id_name("Hierarchical_inter_", i));
      add_id_var(block, nccl_id_name("Hierarchical_exter_", i));
    }
  }
  Operator op;
  op.type = "gen_nccl_id";
  op.outputs["NCCLID"] = {nccl_id_name("", 0)};
  op.attrs = fluid::to_attributes(fluid::GenNcclIdAttrs{
      .trainers = options.endpoints,
      .trainer_id = options.trainer_id,
      .nccl_comm_num = options.nccl_comm_num,
      .use_hierarchical_allreduce = options.use_hierarchical_allreduce,
      .hierarchical_allreduce_inter_nranks = options.hierarchical_allreduce_inter_nranks});
  block.append_op(std::move(op));
}

void init_in_process(Program& startup, const CollectiveOptions& options) {
  for (int ring = 0; ring < options.rings; ++ring) {
    fluid::CCommInitAllAttrs attrs;
    attrs.ring_id = ring;
    Operator init;
    init.type = "c_comm_init_all";
    init.attrs = fluid::to_attributes(std::move(attrs));
    startup.global_block().append_op(std::move(init));
  }
}

int64_t bytes_of(const Block& block, const Operator& op) {
  int64_t bytes = 0;
  for (const std::string& name : op.input("X")) {
    const VarDesc& var = block.var(name);
    bytes += var.shape.numel() * static_cast<int64_t>(fluid::dtype_size(var.dtype));
  }
  return bytes;
}

// All-reduces with no use of their gradients in between become one, at the place of the last.
void fuse_all_reduces(Program& program, const CollectiveOptions& options) {
  Block& block = program.global_block();
  OpList rewritten;
  OpList open(static_cast<size_t>(options.rings));
  std::vector<int64_t> bytes(open.size(), 0);
  std::set<std::string> waiting;  // gradients that are not summed yet
  const auto flush = [&](size_t ring) {
    if (open[ring]) {
      rewritten.emplace_back(fluid::make_sync_calc_stream(open[ring]->input("X").front()));
      rewritten.push_back(std::move(open[ring]));
    }
    bytes[ring] = 0;
  };
  const auto flush_all = [&] {
    waiting.clear();
    for (size_t ring = 0; ring < open.size(); ++ring) flush(ring);
  };
  for (auto& op : block.take_ops()) {
    if (op->type == "c_sync_calc_stream") continue;
    if (op->type == "c_allreduce_sum") {
      // Rows differ from rank to rank: they go alone.
      if (block.var(op->input("X").front()).kind == fluid::VarKind::kSelectedRows) {
        rewritten.emplace_back(fluid::make_sync_calc_stream(op->input("X").front()));
        rewritten.push_back(std::move(op));
        continue;
      }
      const auto ring = static_cast<size_t>(std::get<int64_t>(*op->attr("ring_id")));
      const int64_t more = bytes_of(block, *op);
      const bool same = open[ring] && block.var(open[ring]->input("X").front()).dtype ==
                                          block.var(op->input("X").front()).dtype;
      if (open[ring] && (!same || bytes[ring] + more > options.fuse_bytes)) flush(ring);
      bytes[ring] += more;
      waiting.insert(op->input("X").begin(), op->input("X").end());
      if (!open[ring]) {
        open[ring] = std::move(op);
        continue;
      }
      for (const std::string& name : op->input("X")) {
        open[ring].edit().inputs["X"].push_back(name);
        open[ring].edit().outputs["Out"].push_back(name);
      }
      continue;
    }
    const bool backward = fluid::has_role(op->role, OpRole::kBackward);
    const Names inputs = op->input_names();
    const bool reads = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const auto& name) { return waiting.contains(name); });
    if (op->type == "c_sync_comm_stream" || !backward || reads) flush_all();
    rewritten.push_back(std::move(op));
  }
  flush_all();
  block.set_ops(std::move(rewritten));
}

}  // namespace

void record_collective(Program& program, const CollectiveOptions& options) {
  fluid::DistributionInfo& info = program.distribution();
  info.trainer_id = options.rank;
  info.trainers = options.shards;
  info.wait_port = options.wait_port;
}

std::vector<Pass> collective_startup_passes(const CollectiveOptions& options) {
  const auto with_options = [&options](void (*pass)(Program&, const CollectiveOptions&)) {
    return [&options, pass](Program& program) { pass(program, options); };
  };
  if (options.in_process) {
    return {{"init_communicators", "The devices of this process.", with_options(init_in_process)}};
  }
  return {{"init_communicators", "One communicator per ring.", with_options(init_communicators)},
          {"broadcast_parameters", "All ranks start from rank 0's parameters.",
           with_options(broadcast_parameters)}};
}

ProgramPair make_all_reduce_programs(const Program& main, const Program& startup,
                                     const CollectiveOptions& options, const PassRunner& runner) {
  ProgramPair pair{.main = main, .startup = startup};
  record_collective(pair.main, options);
  record_collective(pair.startup, options);
  if (options.nranks == 1 && options.shards == 1 && !options.in_process) return pair;
  const auto with_options = [&options](void (*pass)(Program&, const CollectiveOptions&)) {
    return [&options, pass](Program& program) { pass(program, options); };
  };
  std::vector<Pass> main_passes = {
      {"scale_loss_gradient", "The sum over shards becomes their mean.",
       with_options(scale_loss_gradient)},
      {"insert_all_reduces", "Each gradient is summed as soon as it is made.",
       with_options(insert_all_reduces)}};
  if (options.fuse_bytes > 0) {
    main_passes.push_back({"fuse_all_reduces", "Small gradients are summed together.",
                           with_options(fuse_all_reduces)});
  }
  runner.run(pair.main, main_passes);
  runner.run(pair.startup, collective_startup_passes(options));
  return pair;
}

ProgramPair make_nccl2_programs(const Program& main, const Program& startup,
                                const Nccl2Options& options, const PassRunner& runner) {
  ProgramPair pair{.main = main, .startup = startup};
  const std::array startup_passes = {
      Pass{"append_gen_nccl_id", "The ids of all communicators.",
           [&options](Program& program) { append_gen_nccl_id(program, options); }},
  };
  runner.run(pair.startup, startup_passes);
  for (Program* program : {&pair.main, &pair.startup}) {
    fluid::DistributionInfo& info = program->distribution();
    info.trainer_id = options.trainer_id;
    info.trainers = static_cast<int32_t>(options.endpoints.size());
    info.trainers_endpoints = options.endpoints;
    info.nccl_comm_num = options.nccl_comm_num;
    info.use_hierarchical_allreduce = options.use_hierarchical_allreduce;
    info.hierarchical_allreduce_inter_nranks = options.hierarchical_allreduce_inter_nranks;
    info.wait_port = options.wait_port;
  }
  return pair;
}

}  // namespace fleet::transpiler
