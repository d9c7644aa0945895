#include "transpiler/parameter_server/server_program.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/server_program.h"
#include "transpiler/parameter_server/dc_asgd.h"
#include "transpiler/parameter_server/distributed_table.h"
#include "transpiler/parameter_server/trainer_ops.h"
#include "transpiler/parameter_server/update_phases.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::BlockRef;
using fluid::Operator;
using fluid::Program;
using fluid::SliceInfo;
using fluid::VarDesc;

// What the passes of one server program tell each other.
struct ServerState {
  const Program& origin;
  const TrainingOps& ops;
  const ServerPlan& plan;
  const UpdatePhases& phases;
  int server;
  fluid::ListenAndServAttrs listen;
  Names received;       // what listen_and_serv takes
  int temporaries = 0;  // variables of delay compensation
};

// Variables of a server keep name, type and shape only.
VarDesc server_var(const VarDesc& origin, std::string name) {
  VarDesc var;
  var.name = std::move(name);
  var.kind = origin.kind;
  var.dtype = origin.dtype;
  var.typed = origin.typed;
  var.shape = origin.shape;
  var.lod_level = origin.lod_level;
  var.persistable = origin.kind != fluid::VarKind::kStepScopes;
  return var;
}

VarDesc slice_var(const VarDesc& origin, std::string name, const SliceRef& here) {
  VarDesc var = server_var(origin, std::move(name));
  if (here.param->growing || (!here.param->sliced && !here.param->interleaved)) return var;
  var.shape = here.slice->shape;
  var.slice = SliceInfo{.origin = origin.name,
                        .origin_shape = here.param->shape.to_vector(),
                        .offset = here.slice->offset,
                        .block_id = here.slice->block_id};
  return var;
}

Names shard_grads(const ServerState& state, const PlacedSlice& slice) {
  if (!state.plan.averages()) return {slice.grad};
  Names names;
  for (int shard = 0; shard < state.plan.shards; ++shard) {
    names.push_back(slice.grad + shard_suffix(shard));
  }
  return names;
}

void declare_slices(Program& program, ServerState& state) {
  Block& block = program.global_block();
  const Block& origin = state.origin.global_block();
  for (const SliceRef& here : slices_on(state.plan, state.server)) {
    block.add_var(slice_var(origin.var(here.param->param), here.slice->param, here));
    if (!state.plan.form.dc_asgd.name.empty()) {
      declare_backups(block, *here.slice, origin.var(here.param->param), state.plan.shards);
    }
    const VarDesc& grad = origin.var(here.param->grad);
    block.add_var(slice_var(grad, here.slice->grad, here));
    for (std::string& name : shard_grads(state, *here.slice)) {
      if (state.plan.averages()) {
        VarDesc var = slice_var(grad, name, here);
        var.persistable = false;
        block.add_var(std::move(var));
      }
      state.received.push_back(std::move(name));
    }
  }
}

void declare_from_origin(Block& block, const Block& origin, const Names& names) {
  for (const std::string& name : names) {
    const VarDesc* var = origin.find_var_recursive(name);
    if (var != nullptr && block.find_var_recursive(name) == nullptr) {
      block.add_var(server_var(*var, name));
    }
  }
}

void copy_schedule_op(const ServerState& state, const Operator& op, Program& program,
                      int32_t target);

// A sub-block with its own variables, inside `parent`.
BlockRef copy_sub_block(const ServerState& state, BlockRef from, Program& program, int32_t parent) {
  const Block& source = state.origin.block(from.index);
  const int32_t index = program.add_block(parent).index();
  for (const VarDesc* var : source.vars_in_order()) program.block(index).add_var(*var);
  for (const auto& op : source.ops()) {
    for (const Names& names : {op->input_names(), op->output_names()}) {
      declare_from_origin(program.global_block(), state.origin.global_block(), names);
      // Again in the block itself, as the programs that ours are compared with do.
      for (const std::string& name : names) {
        if (program.block(index).find_var(name) != nullptr) continue;
        program.block(index).add_var(server_var(source.var(name), name));
      }
    }
    copy_schedule_op(state, *op, program, index);
  }
  return {index};
}

void copy_schedule_op(const ServerState& state, const Operator& op, Program& program,
                      int32_t target) {
  Operator copy = op;
  for (const auto& [name, value] : op.attrs) {
    if (const auto* ref = std::get_if<BlockRef>(&value)) {
      copy.attrs[name] = copy_sub_block(state, *ref, program, target);
    }
  }
  program.block(target).append_op(std::move(copy));
}

void add_learning_rate_block(Program& program, ServerState& state) {
  const Block& origin = state.origin.global_block();
  const int32_t index = program.add_block(0).index();
  for (const size_t position : state.ops.lr_ops) {
    const Operator& op = origin.op(position);
    declare_from_origin(program.global_block(), origin, op.input_names());
    declare_from_origin(program.global_block(), origin, op.output_names());
    copy_schedule_op(state, op, program, index);
  }
  bind_schedule(state.listen, index);
}

const VarDesc& find_var(const ServerState& state, const std::string& name) {
  const auto added = state.phases.added.find(name);
  return added != state.phases.added.end() ? added->second : state.origin.global_block().var(name);
}

// "v.block<i>": what the slice makes of the rows of v.
std::string part_name(std::string_view whole, const PlacedSlice& slice) {
  return str_cat(whole, fluid::slice_suffix(slice.block_id));
}

// A part of `whole`, which has a first dimension like the parameter.
VarDesc part_var(const VarDesc& whole, const SliceRef& here) {
  const int64_t rows = here.slice->shape[0];
  const int64_t row = whole.shape.numel() / whole.shape[0];
  const int64_t param_row = here.param->shape.numel() / here.param->shape[0];
  VarDesc var = server_var(whole, part_name(whole.name, *here.slice));
  var.shape.set(0, rows);
  // Those of a table follow each other by server.
  const int64_t first =
      here.param->interleaved ? here.slice->server * rows : here.slice->offset / param_row;
  var.slice = SliceInfo{.origin = whole.name,
                        .origin_shape = whole.shape.to_vector(),
                        .offset = first * row,
                        .block_id = here.slice->block_id};
  return var;
}

// The name of an update's variable on this server; declares it if it is new here.
std::string place_state(Program& program, const ServerState& state, const SliceRef& here,
                        const std::string& name) {
  Block& block = program.global_block();
  if (name.ends_with(kPartSuffix)) {
    const std::string whole = name.substr(0, name.size() - kPartSuffix.size());
    return block.add_var(part_var(find_var(state, whole), here)).name;
  }
  const VarDesc& var = find_var(state, name);
  if (state.phases.shared.contains(name)) {
    if (!block.has_var(name)) block.add_var(server_var(var, name));
    return name;
  }
  std::string local = name;
  switch (state_kind(state.ops, *here.param, var)) {
    case StateKind::kParam:
      return here.slice->param;
    case StateKind::kGrad:
      return here.slice->grad;
    case StateKind::kLearningRate:
      if (!block.has_var(name)) block.add_var(server_var(var, name));
      return name;
    case StateKind::kSliced:
      local = state_name(*here.param, *here.slice, name);
      block.add_var(slice_var(var, local, here));
      return local;
    case StateKind::kWhole:
      local = state_name(*here.param, *here.slice, name);
      block.add_var(server_var(var, local));
      return local;
  }
  return local;
}

// The input of an op of the chain whose delay is compensated just before that op: the gradient of
// the update op, or, for sparse gradients, the gradient as it came. The decay of rows is computed
// from the server's own values, so it has no delay. Null for other ops.
std::string* late_gradient(const ServerState& state, const SliceRef& here, bool update,
                           Operator& op) {
  if (state.plan.form.dc_asgd.name.empty()) return nullptr;
  if (!here.param->sparse) return update ? &op.inputs["Grad"].front() : nullptr;
  for (auto& [slot, names] : op.inputs) {
    const auto found = std::find(names.begin(), names.end(), here.slice->grad);
    if (found != names.end()) return &*found;
  }
  return nullptr;
}

// The update op itself; decay of rows makes a whole gradient of them first. Those of a distributed
// table are rows on the way in either case.
bool takes_rows(const ServerState& state, const SliceRef& here) {
  if (here.param->interleaved) return true;
  const UpdatedParam& updated = update_of(state.ops, *here.param);
  const std::string& taken = state.origin.global_block().op(updated.update).input("Grad").front();
  return here.param->sparse && find_var(state, taken).kind == fluid::VarKind::kSelectedRows;
}

void append_phase(Program& program, ServerState& state, const SliceRef& here,
                  const std::vector<PhasedOp>& ops, int32_t target) {
  const UpdatedParam& updated = update_of(state.ops, *here.param);
  // A server's programs are the same whoever asks, so the pair names shard 0.
  const bool named = state.plan.form.classic_sync() && state.plan.averages();
  const bool whole = !here.param->sliced && !here.param->interleaved;
  const std::string suffix = named && whole ? shard_suffix(0) : "";
  for (const PhasedOp& phased : ops) {
    Operator op = *phased.op;
    for (auto* slots : {&op.inputs, &op.outputs}) {
      for (auto& [slot, names] : *slots) {
        for (std::string& name : names) {
          if (!name.empty()) name = place_state(program, state, here, name);
        }
      }
    }
    if (std::string* late = late_gradient(state, here, phased.update, op)) {
      *late = append_compensation(program.block(target), *here.slice, *late,
                                  state.plan.form.dc_asgd, state.plan.shards, state.temporaries);
    }
    // Decay of rows makes another gradient than backward does, which is on no trainer.
    const bool decayed_rows = here.param->sparse && !takes_rows(state, here) &&
                              op.role_var.size() == 2 && op.role_var[1] != updated.grad;
    if (!decayed_rows) op.role_var = {updated.param, updated.grad + suffix};
    program.block(target).append_op(std::move(op));
  }
}

void append_exchange(Program& program, const ServerState& state, const ExchangedVar& var,
                     Block& target) {
  const PlacedParam& param = updated_at(state.plan, var.param);
  Block& block = program.global_block();
  if (!block.has_var(var.name)) {
    block.add_var(server_var(find_var(state, var.name), var.name));
  }
  fluid::ExchangedRows rows{.whole = var.name, .parts = {}, .rows = {}, .servers = {}};
  for (const PlacedSlice& slice : param.slices) {
    rows.parts.push_back(var.rows ? part_name(var.name, slice) : var.name);
    rows.rows.push_back(var.rows ? slice.shape[0] : 1);
    rows.servers.push_back(static_cast<uint32_t>(slice.server));
  }
  fluid::append_exchange(target, rows, state.plan.endpoints, static_cast<uint32_t>(state.server));
}

void add_exchange_block(Program& program, ServerState& state, const ExchangeStage& stage,
                        int32_t parent) {
  const int32_t index = program.add_block(parent).index();
  for (const ExchangedVar& var : stage.vars) {
    const bool cut = updated_at(state.plan, var.param).slices.size() > 1;
    if (state.plan.endpoints.size() == 1 && !cut) continue;  // the one part is the whole
    append_exchange(program, state, var, program.block(index));
  }
  Block& global = program.global_block();
  for (Operator op : stage.ops) {
    for (const Names& names : {op.input_names(), op.output_names()}) {
      for (const std::string& name : names) {
        if (!global.has_var(name)) {
          global.add_var(server_var(find_var(state, name), name));
        }
      }
    }
    op.role_var.clear();
    program.block(index).append_op(std::move(op));
  }
  bind_exchange(state.listen, index);
}

// sum of what the shards made, times 1/shards, is the new value.
void add_statistic_blocks(Program& program, ServerState& state, int32_t parent) {
  for (const PlacedStatistic& statistic : state.plan.statistics) {
    if (statistic.server != state.server) continue;
    const VarDesc& origin = state.origin.global_block().var(statistic.name);
    PlacedSlice whole{
        .param = statistic.name, .grad = statistic_name(statistic.name), .shape = statistic.shape};
    Block& global = program.global_block();
    global.add_var(server_var(origin, statistic.name));
    global.add_var(server_var(origin, whole.grad));
    for (std::string& name : shard_grads(state, whole)) {
      if (state.plan.averages()) {
        VarDesc var = server_var(origin, name);
        var.persistable = false;
        global.add_var(std::move(var));
      }
      state.received.push_back(std::move(name));
    }
    Block& block = program.add_block(parent);
    if (state.plan.averages()) append_average(block, shard_grads(state, whole), whole.grad);
    append_replacement(block, statistic.name, whole.grad);
    bind_update(state.listen, whole.grad, block.index());
  }
}

// The blocks that update one slice.
struct Chain {
  SliceRef here;
  const std::vector<std::vector<PhasedOp>>& phases;
  int32_t last = -1;  // the newest block
};

Chain chain_of(const ServerState& state, size_t position, const PlacedSlice& slice) {
  return {.here = {&updated_at(state.plan, position), &slice},
          .phases = state.phases.params[position]};
}

// The next block of the chain, if the phase has one.
void add_phase_block(Program& program, ServerState& state, Chain& chain, size_t phase,
                     int32_t parent) {
  if (phase >= chain.phases.size()) return;
  const auto& [param, slice] = chain.here;
  const int32_t index = program.add_block(parent).index();
  if (phase == 0) {
    Names parts = param->interleaved ? table_gradients(state.plan, *param, state.server)
                                     : shard_grads(state, *slice);
    if (state.plan.averages()) {
      append_average(program.block(index), std::move(parts), slice->grad);
    }
    bind_update(state.listen, slice->grad, index);
    if (takes_rows(state, chain.here)) bind_rows(state.listen, slice->grad, slice->param);
  } else {
    bind_next(state.listen, chain.last, index);
  }
  append_phase(program, state, chain.here, chain.phases[phase], index);
  chain.last = index;
}

void add_table_blocks(Program& program, ServerState& state, int32_t parent) {
  const ServerPlan& plan = state.plan;
  if (plan.tables.empty()) return;
  const int32_t first = program.block_count();
  for (size_t i = 0; i < plan.tables.size(); ++i) {
    const PlacedParam& table = plan.tables[i];
    const PlacedSlice& slice = table.slices[static_cast<size_t>(state.server)];
    Block& global = program.global_block();
    declare_table(global, state.origin.global_block(), plan, table, state.server);
    if (!plan.form.dc_asgd.name.empty()) {
      declare_backups(global, slice, state.origin.global_block().var(table.param), plan.shards);
    }
    const Names parts = table_gradients(plan, table, state.server);
    state.received.insert(state.received.end(), parts.begin(), parts.end());
    Chain chain = chain_of(state, plan.params.size() + i, slice);
    for (size_t phase = 0; phase < chain.phases.size(); ++phase) {
      add_phase_block(program, state, chain, phase, parent);
    }
  }
  add_table_services(program, plan, state.server, first, state.listen);
}

void add_optimize_blocks(Program& program, ServerState& state) {
  // The block that is last now: the schedule's, so that updates see its variables.
  const int32_t parent = program.block_count() - 1;
  std::vector<Chain> chains;
  for (const SliceRef& here : updates_on(state.plan, state.ops, state.server)) {
    const auto position = static_cast<size_t>(here.param - state.plan.params.data());
    chains.push_back(chain_of(state, position, *here.slice));
  }
  for (size_t phase = 0; phase <= state.phases.stages.size(); ++phase) {
    for (Chain& chain : chains) add_phase_block(program, state, chain, phase, parent);
    if (phase < state.phases.stages.size()) {
      add_exchange_block(program, state, state.phases.stages[phase], parent);
    }
  }
  add_statistic_blocks(program, state, parent);
  add_table_blocks(program, state, parent);
  if (state.listen.optimize_blocks.empty()) {
    state.listen.optimize_blocks.push_back({program.add_block(parent).index()});
  }
}

void append_listen(Program& program, ServerState& state) {
  fluid::ListenAndServAttrs& attrs = state.listen;
  attrs.endpoint = state.plan.endpoints[static_cast<size_t>(state.server)];
  attrs.pserver_id = state.server;
  attrs.fanin = state.plan.shards;
  attrs.distributed_mode =
      fluid::distributed_mode_of(state.plan.form.mode, state.plan.form.runtime_split);
  attrs.dc_asgd = !state.plan.form.dc_asgd.name.empty();
  fluid::append_listen(program, {{"X", state.received}}, attrs);
}

}  // namespace

Program make_server_program(const Program& main, const TrainingOps& ops, const ServerPlan& plan,
                            const UpdatePhases& phases, int server, const PassRunner& runner) {
  ServerState state{.origin = main,
                    .ops = ops,
                    .plan = plan,
                    .phases = phases,
                    .server = server,
                    .listen = {},
                    .received = {},
                    .temporaries = 0};
  const auto with_state = [&state](void (*pass)(Program&, ServerState&)) {
    return [&state, pass](Program& program) { pass(program, state); };
  };
  const std::array passes = {
      Pass{"declare_slices", "What lives here, and what arrives.", with_state(declare_slices)},
      Pass{"add_learning_rate_block", "The schedule runs once per step.",
           with_state(add_learning_rate_block), !ops.lr_ops.empty()},
      Pass{"add_optimize_blocks", "One block averages and updates each slice.",
           with_state(add_optimize_blocks)},
      Pass{"append_listen", "Block 0 serves.", with_state(append_listen)},
  };
  Program program;
  program.set_random_seed(main.random_seed());
  program.set_op_library(main.op_library());
  runner.run(program, passes);
  record_server(program, plan, server);
  return program;
}

}  // namespace fleet::transpiler
