#include "transpiler/parameter_server/trainer_program.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <memory>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/ops/distributed/trainer_program.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/program/live_blocks.h"
#include "transpiler/parameter_server/async_counter.h"
#include "transpiler/parameter_server/distributed_table.h"
#include "transpiler/parameter_server/tables.h"
#include "transpiler/parameter_server/trainer_ops.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::OpList;
using fluid::OpRole;
using fluid::Program;
using fluid::VarDesc;

// What the passes of one main program tell each other.
struct TrainerState {
  const ServerPlan& plan;
  const TrainerOptions& options;
  Names send_controls;   // by parameter: the control variable of its send
  Names other_controls;  // of what else is sent
  std::string all_sent;  // what waits for no send of its own waits for this
  int controls = 0;      // control variables made
  PlaceAttributes sends;
  OpList post_update_ops;  // what the trainer does after its receives
  std::set<std::string, std::less<>> removed_vars;
};

// Gradients carry their shard when the servers keep one for each.
std::string local_suffix(const ServerPlan& plan, const TrainerOptions& options) {
  const bool named = plan.form.classic_sync() && plan.averages();
  return named ? shard_suffix(options.trainer_id) : "";
}

// What the gradient is called on this trainer: one that travels whole carries its shard's name.
std::string local_grad(const TrainerState& state, const PlacedParam& param) {
  return param.sliced ? param.grad : param.grad + local_suffix(state.plan, state.options);
}

// New names by old ones.
class Renamed {
 public:
  void add(std::string_view from, std::string to) {
    ends_.set(static_cast<unsigned char>(from.back()));
    names_.emplace(from, std::move(to));
  }
  bool empty() const { return names_.empty(); }
  // Null for a name that stays. Most do, and their last letter says so.
  const std::string* find(std::string_view name) const {
    if (name.empty() || !ends_.test(static_cast<unsigned char>(name.back()))) return nullptr;
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : &found->second;
  }

 private:
  std::bitset<256> ends_;
  std::unordered_map<std::string_view, std::string> names_;
};

void rename(OpList& ops, const Renamed& renamed) {
  const auto concerned = [&renamed](const Names& names) {
    return std::any_of(names.begin(), names.end(),
                       [&renamed](const auto& name) { return renamed.find(name) != nullptr; });
  };
  const auto in_slots = [&concerned](const fluid::SlotMap& slots) {
    return std::any_of(slots.begin(), slots.end(),
                       [&concerned](const auto& slot) { return concerned(slot.second); });
  };
  const auto apply = [&renamed](Names& names) {
    for (std::string& name : names) {
      if (const std::string* to = renamed.find(name)) name = *to;
    }
  };
  for (auto& op : ops) {
    if (!in_slots(op->inputs) && !in_slots(op->outputs) && !concerned(op->role_var)) continue;
    Operator& own = op.edit();
    for (auto& [slot, names] : own.inputs) apply(names);
    for (auto& [slot, names] : own.outputs) apply(names);
    apply(own.role_var);
  }
}

void rename_gradients(Program& program, TrainerState& state) {
  Renamed renamed;
  for (const PlacedParam& param : state.plan.params) {
    std::string local = local_grad(state, param);
    if (local == param.grad) continue;
    program.global_block().rename_var(param.grad, local);
    renamed.add(param.grad, std::move(local));
  }
  if (renamed.empty()) return;
  for (int32_t index = 0; index < program.block_count(); ++index) {
    OpList ops = program.block(index).take_ops();
    rename(ops, renamed);
    program.block(index).set_ops(std::move(ops));
  }
  rename(state.post_update_ops, renamed);
}

fluid::AttributeMap send_attributes(const TrainerState& state, const PlacedParam& param) {
  fluid::SendAttrs attrs;
  attrs.epmap = endpoints_of(state.plan, param);
  if (state.plan.form.runtime_split) {
    const std::string suffix = state.plan.averages() ? shard_suffix(state.options.trainer_id) : "";
    attrs.sections = sections_of(param);
    for (const PlacedSlice& slice : param.slices)
      attrs.send_varnames.push_back(slice.grad + suffix);
  }
  return fluid::to_attributes(std::move(attrs));
}

Operator make_send(TrainerState& state, const PlacedParam& param, Names inputs,
                   std::string control) {
  const auto attributes = [&state, &param] { return send_attributes(state, param); };
  Operator op;
  op.type = "send";
  op.inputs["X"] = std::move(inputs);
  op.outputs["Out"] = {std::move(control)};
  op.attrs = state.plan.form.runtime_split ? attributes() : state.sends.of(param, attributes);
  op.role = OpRole::kRpc;
  op.role_var = {param.param, param.grad};
  return op;
}

Operator make_split(const PlacedParam& param, Names slices) {
  Operator op;
  if (param.sparse) {
    op.type = "split_selected_rows";
    op.attrs =
        fluid::to_attributes(fluid::SplitSelectedRowsAttrs{.height_sections = sections_of(param)});
  } else {
    fluid::SplitByrefAttrs attrs;
    attrs.sections = sections_of(param);
    op.type = "split_byref";
    op.attrs = fluid::to_attributes(std::move(attrs));
  }
  op.inputs["X"] = {param.grad};
  op.outputs["Out"] = std::move(slices);
  op.role = OpRole::kDist;
  return op;
}

// The ops that send the gradient of parameter i, appended to `out`.
void emit_send(Block& block, TrainerState& state, size_t i, OpList& out) {
  const PlacedParam& param = state.plan.params[i];
  Names inputs = {param.grad};
  if (param.sliced) {
    const std::string suffix = local_suffix(state.plan, state.options);
    Names slices;
    for (const PlacedSlice& slice : param.slices) {
      slices.push_back(slice.grad + suffix);
      add_slice_var(block, param, slice, param.grad, slices.back());
      if (param.sparse) block.edit_var(slices.back()).kind = fluid::VarKind::kSelectedRows;
    }
    if (!state.plan.form.runtime_split) {
      out.emplace_back(make_split(param, slices));
      inputs = std::move(slices);
    }
  }
  std::string control = add_control_var(block, state.controls++);
  state.send_controls[i] = control;
  out.emplace_back(make_send(state, param, std::move(inputs), std::move(control)));
}

// Sends each gradient right after the last op that makes it, so that the rest of backward runs
// meanwhile. Of several gradients of one op, the one that was dispatched last goes first.
void insert_sends(Program& program, TrainerState& state) {
  Block& block = program.global_block();
  std::unordered_map<std::string_view, size_t> wanted;
  const auto& params = state.plan.params;
  for (size_t i = 0; i < params.size(); ++i) wanted.emplace(params[i].grad, i);
  std::vector<size_t> last_writer(wanted.size(), 0);
  for (size_t position = 0; position < block.op_count(); ++position) {
    for (const auto& [slot, names] : block.ops()[position]->outputs) {
      for (const std::string& name : names) {
        const auto found = wanted.find(name);
        if (found != wanted.end()) last_writer[found->second] = position;
      }
    }
  }
  std::vector<std::vector<size_t>> after(block.op_count());
  const auto& order = state.plan.dispatch_order;
  for (auto i = order.rbegin(); i != order.rend(); ++i) after[last_writer[*i]].push_back(*i);
  state.send_controls.resize(params.size());
  OpList rewritten;
  auto ops = block.take_ops();
  for (size_t position = 0; position < ops.size(); ++position) {
    rewritten.push_back(std::move(ops[position]));
    for (const size_t i : after[position]) emit_send(block, state, i, rewritten);
  }
  block.set_ops(std::move(rewritten));
}

// What a shard made of a statistic goes to its server right after the last op that writes it.
void send_statistics(Program& program, TrainerState& state) {
  Block& block = program.global_block();
  std::unordered_map<std::string, size_t> last_writer;
  for (size_t i = 0; i < block.op_count(); ++i) {
    for (std::string& name : block.ops()[i]->output_names()) last_writer[std::move(name)] = i;
  }
  std::vector<std::vector<const PlacedStatistic*>> after(block.op_count());
  for (const PlacedStatistic& statistic : state.plan.statistics) {
    after[last_writer.at(statistic.name)].push_back(&statistic);
  }
  const bool split = state.plan.form.runtime_split;
  const std::string shard = state.plan.averages() ? shard_suffix(state.options.trainer_id) : "";
  OpList rewritten;
  auto ops = block.take_ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    rewritten.push_back(std::move(ops[i]));
    for (const PlacedStatistic* statistic : after[i]) {
      VarDesc var;
      var.name = statistic_name(statistic->name) + (split ? "" : shard);
      var.dtype = statistic->dtype;
      var.shape = statistic->shape;
      const std::string made = block.add_var(std::move(var)).name;
      Operator copy;
      copy.type = "assign";
      copy.inputs["X"] = {statistic->name};
      copy.outputs["Out"] = {made};
      copy.attrs = fluid::to_attributes(fluid::NoAttrs{});
      copy.role = OpRole::kDist;
      rewritten.emplace_back(std::move(copy));
      fluid::SendAttrs attrs;
      attrs.epmap = {state.plan.endpoints[static_cast<size_t>(statistic->server)]};
      if (split) {
        attrs.sections = {statistic->shape[0]};
        attrs.send_varnames = {statistic_name(statistic->name) + shard};
      }
      Operator send;
      send.type = "send";
      send.inputs["X"] = {made};
      send.outputs["Out"] = {add_control_var(block, state.controls++)};
      state.other_controls.push_back(send.outputs["Out"].front());
      send.attrs = fluid::to_attributes(std::move(attrs));
      send.role = OpRole::kRpc;
      send.role_var = {statistic->name, made};
      rewritten.emplace_back(std::move(send));
    }
  }
  block.set_ops(std::move(rewritten));
}

void check_no_table(const Operator& op, const ServerPlan& plan) {
  for (const std::string& name : op.input_names()) {
    const bool remote =
        std::any_of(plan.params.begin(), plan.params.end(),
                    [&name](const auto& param) { return param.remote && param.param == name; }) ||
        std::any_of(plan.tables.begin(), plan.tables.end(),
                    [&name](const auto& table) { return table.param == name; });
    if (!remote) continue;
    throw_error(ErrorCode::kNotSupported,
                {.what = "an op after the updates reads a table that is on the servers only",
                 .where = str_cat("op '", op.type, "', variable '", name, "'"),
                 .expected = "parameters that come back to the trainer",
                 .got = "a table with is_sparse",
                 .fix = "set is_sparse to false, or train without the average"});
  }
}

// Averages of parameters take what comes back from the servers.
void take_post_update_ops(Program& program, TrainerState& state) {
  Block& block = program.global_block();
  OpList others;
  for (auto& op : block.take_ops()) {
    const bool follows = is_post_update_op(*op);
    if (follows) check_no_table(*op, state.plan);
    (follows ? state.post_update_ops : others).push_back(std::move(op));
  }
  block.set_ops(std::move(others));
}

void append_post_update_ops(Program& program, TrainerState& state) {
  Block& block = program.global_block();
  OpList ops = block.take_ops();
  for (auto& op : state.post_update_ops) ops.push_back(std::move(op));
  block.set_ops(std::move(ops));
}

// What `ops` of the optimizer read and nothing else of the program needs: neither parameters nor
// gradients. The names are those of the ops.
std::set<std::string_view> find_update_state(const Program& program,
                                             const std::vector<const Operator*>& ops) {
  std::set<std::string_view> state;
  for (const Operator* op : ops) {
    for (const auto& [slot, names] : op->inputs) {
      for (const std::string& name : names) {
        const Names& own = op->role_var;
        if (!name.empty() && std::find(own.begin(), own.end(), name) == own.end()) {
          state.insert(name);
        }
      }
    }
  }
  for (const Operator* op : ops) {
    for (const std::string& name : op->role_var) state.erase(name);
  }
  for (const int32_t index : fluid::live_blocks(program)) {
    for (const auto& op : program.block(index).ops()) {
      for (const fluid::SlotMap* slots : {&op->inputs, &op->outputs}) {
        for (const auto& [slot, names] : *slots) {
          for (const std::string& name : names) state.erase(name);
        }
      }
    }
  }
  return state;
}

// Updates and schedules run on the servers; what only they used goes with them.
void remove_update_ops(Program& program, TrainerState& state) {
  Block& block = program.global_block();
  OpList kept;
  OpList removed;
  std::vector<const Operator*> optimizing;
  for (auto& op : block.take_ops()) {
    if (op->role == OpRole::kOptimize) optimizing.push_back(op.get());
    const bool moves = is_update_role(*op) || is_schedule_role(*op);
    (moves ? removed : kept).push_back(std::move(op));
  }
  block.set_ops(std::move(kept));
  for (const std::string_view name : find_update_state(program, optimizing)) {
    block.remove_var(name);
    state.removed_vars.emplace(name);
  }
}

// Tells every server that this trainer made a step.
void append_counter_send(Program& program, TrainerState& state) {
  Block& block = program.global_block();
  const std::string counter = kStepCounter + shard_suffix(state.options.trainer_id);
  fluid::SendAttrs attrs;
  attrs.epmap = state.plan.endpoints;
  attrs.merge_add = true;
  attrs.use_send_handler = false;
  if (state.plan.form.runtime_split) attrs.send_varnames = {counter};
  Operator op;
  op.type = "send";
  op.inputs["X"] = {counter};
  op.outputs["Out"] = {add_control_var(block, state.controls++)};
  state.other_controls.push_back(op.outputs["Out"].front());
  op.attrs = fluid::to_attributes(std::move(attrs));
  op.role = OpRole::kRpc;
  op.role_var = {counter, counter};
  block.append_op(std::move(op));
}

void append_send_barrier(Program& program, TrainerState& state) {
  Block& block = program.global_block();
  // Declared in every form, as the programs that ours are compared with do.
  const std::string control = add_control_var(block, state.controls++);
  state.all_sent = state.send_controls.empty() ? control : state.send_controls.front();
  if (!state.plan.form.send_barrier) return;
  fluid::SendBarrierAttrs attrs;
  attrs.endpoints = state.plan.endpoints;
  attrs.trainer_id = state.options.trainer_id;
  attrs.half_async = !state.plan.form.classic_sync();
  Names sent;
  for (const size_t i : state.plan.dispatch_order) sent.push_back(state.send_controls[i]);
  sent.insert(sent.end(), state.other_controls.begin(), state.other_controls.end());
  block.append_op(fluid::make_send_barrier(std::move(attrs), std::move(sent), {control}));
  if (!state.plan.form.classic_sync()) return;
  // From here on everything waits for the barrier.
  std::fill(state.send_controls.begin(), state.send_controls.end(), control);
  state.all_sent = control;
}

void append_receives(Program& program, TrainerState& state) {
  Block& block = program.global_block();
  const bool split_at_runtime = state.plan.form.runtime_split;
  Names received;
  PlaceAttributes attributes;
  for (size_t i = 0; i < state.plan.params.size(); ++i) {
    const PlacedParam& param = state.plan.params[i];
    add_param_slices(block, param);
    if (param.remote) continue;
    Operator op = split_at_runtime
                      ? make_whole_recv(state.plan, param, state.options.trainer_id)
                      : make_recv(state.plan, param, state.options.trainer_id, attributes);
    op.inputs["X"] = {state.send_controls[i]};
    op.role_var = {param.param, local_grad(state, param)};
    const Names& out = op.outputs["Out"];
    received.insert(received.end(), out.begin(), out.end());
    block.append_op(std::move(op));
  }
  for (const PlacedStatistic& statistic : state.plan.statistics) {
    Operator op = make_statistic_recv(state.plan, statistic, state.options.trainer_id);
    op.inputs["X"] = {state.all_sent};
    received.push_back(statistic.name);
    block.append_op(std::move(op));
  }
  if (state.plan.form.classic_sync()) {
    block.append_op(make_fetch_barrier(state.plan, state.options.trainer_id, {state.all_sent},
                                       std::move(received)));
  }
  if (split_at_runtime) return;
  for (const PlacedParam& param : state.plan.params) {
    if (param.sliced && !param.remote) block.append_op(make_concat(param, OpRole::kDist));
  }
}

void remove_update_state(Program& startup, const TrainerState& state) {
  Block& block = startup.global_block();
  auto ops = block.take_ops();
  std::erase_if(ops, [&state](const auto& op) {
    const Names names = op->output_names();
    return std::any_of(names.begin(), names.end(),
                       [&state](const auto& name) { return state.removed_vars.contains(name); });
  });
  block.set_ops(std::move(ops));
  for (const std::string& name : state.removed_vars) block.remove_var(name);
}

std::array<Pass, 3> startup_passes(TrainerState& state, bool with_tables) {
  return {
      Pass{"remove_update_state", "Optimizer state lives on the servers.",
           [&state](Program& program) { remove_update_state(program, state); }},
      Pass{"append_initial_receives", "Training starts from the servers' parameters.",
           [&state](Program& program) {
             append_initial_receives(program, state.plan, state.options.trainer_id);
           }},
      Pass{"fake_remote_tables", "Tables live on the servers.",
           [&state](Program& program) {
             fake_remote_tables(program, state.plan);
             fake_tables(program, state.plan);
           },
           with_tables},
  };
}

}  // namespace

ProgramPair make_trainer_programs(const Program& main, const Program& startup,
                                  const ServerPlan& plan, const TrainerOptions& options,
                                  const PassRunner& runner) {
  TrainerState state{.plan = plan,
                     .options = options,
                     .send_controls = {},
                     .other_controls = {},
                     .all_sent = {},
                     .controls = 0,
                     .sends = {},
                     .post_update_ops = {},
                     .removed_vars = {}};
  const auto with_state = [&state](void (*pass)(Program&, TrainerState&)) {
    return [&state, pass](Program& program) { pass(program, state); };
  };
  const bool with_tables = !plan.tables.empty() || !plan.empty_tables.empty() ||
                           std::any_of(plan.params.begin(), plan.params.end(),
                                       [](const auto& param) { return param.remote; });
  const auto& ops = main.global_block().ops();
  const bool with_post_update_ops =
      std::any_of(ops.begin(), ops.end(), [](const auto& op) { return is_post_update_op(*op); });
  const std::array main_passes = {
      Pass{"place_remote_lookups", "Rows of tables come from the servers.",
           [&state](Program& program) {
             place_remote_lookups(program, state.plan, state.options.trainer_id);
             place_table_lookups(program, state.plan, state.options.trainer_id);
           },
           with_tables},
      Pass{"insert_sends", "Each gradient is sent right after the op that makes it.",
           with_state(insert_sends)},
      Pass{"send_table_gradients", "Rows of distributed tables go to the servers that have them.",
           [&state](Program& program) {
             send_table_gradients(program, state.plan, state.options.trainer_id, state.controls,
                                  state.other_controls);
           },
           !plan.tables.empty()},
      Pass{"send_statistics", "Servers average what the forward part keeps.",
           with_state(send_statistics), !plan.statistics.empty()},
      Pass{"take_post_update_ops", "What follows the updates waits for the parameters.",
           with_state(take_post_update_ops), with_post_update_ops},
      Pass{"remove_update_ops", "Updates and schedules run on the servers.",
           with_state(remove_update_ops)},
      Pass{"rename_gradients", "Gradients that travel whole carry their shard's name.",
           with_state(rename_gradients)},
      Pass{"append_counter_send", "Schedules on the servers hear of this trainer's step.",
           with_state(append_counter_send), plan.form.first_count.has_value()},
      Pass{"append_send_barrier", "The step's gradients are all sent.",
           with_state(append_send_barrier)},
      Pass{"append_receives", "The updated parameters come back.", with_state(append_receives)},
      Pass{"append_post_update_ops", "Averages take the parameters that have come.",
           with_state(append_post_update_ops), with_post_update_ops},
  };
  ProgramPair pair{.main = main, .startup = startup};
  runner.run(pair.main, main_passes);
  runner.run(pair.startup, startup_passes(state, with_tables));
  record_trainer(pair.main, plan, options);
  record_trainer(pair.startup, plan, options);
  return pair;
}

void record_trainer(Program& program, const ServerPlan& plan, const TrainerOptions& options) {
  record_job(program, plan);
  fluid::DistributionInfo& info = program.distribution();
  info.is_chief = options.trainer_id == 0;
  info.trainer_id = options.trainer_id;
  info.ps_endpoint = options.current_endpoint;
  info.wait_port = options.wait_port;
}

}  // namespace fleet::transpiler
