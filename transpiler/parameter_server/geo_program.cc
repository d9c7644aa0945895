#include "transpiler/parameter_server/geo_program.h"

#include <array>

#include "fluid/ops/distributed/names.h"
#include "fluid/ops/distributed/server_program.h"
#include "fluid/ops/distributed/trainer_program.h"
#include "transpiler/parameter_server/distributed_table.h"
#include "transpiler/parameter_server/tables.h"
#include "transpiler/parameter_server/trainer_ops.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Program;
using fluid::VarDesc;

std::string delta_of(const std::string& name) {
  return name + ".delta";
}

void declare_delta(Block& block, const PlacedParam& param) {
  VarDesc var;
  var.name = delta_of(param.param);
  var.dtype = param.dtype;
  var.shape = param.shape;
  if (param.remote) var.kind = fluid::VarKind::kSelectedRows;
  block.add_var(std::move(var));
}

void declare_deltas(Program& program, const ServerPlan& plan) {
  Block& block = program.global_block();
  for (const PlacedParam& param : plan.params) {
    declare_delta(block, param);
    add_param_slices(block, param);
    if (!param.sliced) continue;
    for (const PlacedSlice& slice : param.slices) {
      add_slice_var(block, param, slice, delta_of(param.param), delta_of(slice.param));
      if (param.remote) block.var(delta_of(slice.param)).kind = fluid::VarKind::kSelectedRows;
    }
  }
}

void append_step_notice(Program& program, const ServerPlan& plan) {
  keep_lookups_local(program);
  std::set<std::string, std::less<>> trained;
  for (const PlacedParam& param : plan.params) {
    if (param.sparse) trained.insert(param.param);
  }
  Names ids;
  Names tables;
  for (auto& [rows, table] : looked_up_rows(program, trained)) {
    ids.push_back(std::move(rows));
    tables.push_back(std::move(table));
  }
  Block& block = program.global_block();
  block.append_op(
      fluid::make_step_notice(std::move(ids), std::move(tables), add_control_var(block, 0)));
}

void append_start_notice(Program& startup, int controls) {
  Block& block = startup.global_block();
  VarDesc var;
  var.name = fluid::kParamInit;
  var.typed = false;
  block.add_var(std::move(var));
  block.append_op(fluid::make_start_notice(add_control_var(block, controls)));
}

VarDesc plain(const PlacedParam& param, const PlacedSlice& slice, const std::string& origin,
              std::string name) {
  VarDesc var;
  var.name = std::move(name);
  var.dtype = param.dtype;
  var.shape = slice.shape;
  if (param.sliced) {
    var.slice = fluid::SliceInfo{.origin = origin,
                                 .origin_shape = param.shape.to_vector(),
                                 .offset = slice.offset,
                                 .block_id = slice.block_id};
  }
  return var;
}

void add_sum_blocks(Program& program, const ServerPlan& plan, int server,
                    fluid::ListenAndServAttrs& listen) {
  Block& global = program.global_block();
  for (const auto& [param, slice] : slices_on(plan, server)) {
    VarDesc value = plain(*param, *slice, param->param, slice->param);
    value.persistable = true;
    global.add_var(std::move(value));
    VarDesc delta = plain(*param, *slice, delta_of(param->param), delta_of(slice->param));
    if (param->remote) delta.kind = fluid::VarKind::kSelectedRows;
    global.add_var(std::move(delta));
    Block& block = program.add_block(0);
    append_addition(block, slice->param, delta_of(slice->param));
    bind_update(listen, delta_of(slice->param), block.index());
    if (param->remote) bind_rows(listen, delta_of(slice->param), slice->param);
  }
}

// Rows of growing tables are added alike: a row that is not there yet starts from its first value.
void add_table_sum_blocks(Program& program, const Block& origin, const ServerPlan& plan,
                          fluid::ListenAndServAttrs& listen) {
  Block& global = program.global_block();
  for (const PlacedParam& table : plan.tables) {
    VarDesc value;
    value.name = table.param;
    value.kind = origin.var(table.param).kind;
    value.dtype = table.dtype;
    value.shape = table.shape;
    value.persistable = true;
    VarDesc delta = value;
    delta.name = delta_of(table.param);
    delta.kind = fluid::VarKind::kSelectedRows;
    delta.persistable = false;
    global.add_var(std::move(value));
    global.add_var(std::move(delta));
    Block& block = program.add_block(0);
    fluid::append_row_addition(block, table.param, delta_of(table.param));
    bind_update(listen, delta_of(table.param), block.index());
  }
}

void append_geo_listen(Program& program, const ServerPlan& plan, int server,
                       fluid::ListenAndServAttrs listen) {
  listen.endpoint = plan.endpoints[static_cast<size_t>(server)];
  listen.fanin = plan.shards;
  listen.distributed_mode = fluid::distributed_mode_of(plan.form.mode, plan.form.runtime_split);
  fluid::append_listen(program, {}, listen);
}

}  // namespace

ProgramPair make_geo_trainer_programs(const Program& main, const Program& startup,
                                      const ServerPlan& plan, const TrainerOptions& options,
                                      const PassRunner& runner) {
  int controls = 0;
  const std::array main_passes = {
      Pass{"declare_deltas", "What parameters change by, and their slices.",
           [&](Program& program) { declare_deltas(program, plan); }},
      Pass{"place_remote_lookups", "Rows that are new here come from the servers.",
           [&](Program& program) { place_growing_lookups(program, plan); }, !plan.tables.empty()},
      Pass{"append_step_notice", "The runtime hears of each step.",
           [&](Program& program) { append_step_notice(program, plan); }},
  };
  const std::array startup_passes = {
      Pass{"append_initial_receives", "Training starts from the servers' parameters.",
           [&](Program& program) {
             controls = append_initial_receives(program, plan, options.trainer_id);
             for (const PlacedParam& param : plan.params) {
               declare_delta(program.global_block(), param);
             }
           }},
      Pass{"append_start_notice", "The runtime takes what was received as its first snapshot.",
           [&](Program& program) { append_start_notice(program, controls); }},
  };
  ProgramPair pair{.main = main, .startup = startup};
  runner.run(pair.main, main_passes);
  runner.run(pair.startup, startup_passes);
  record_trainer(pair.main, plan, options);
  record_trainer(pair.startup, plan, options);
  return pair;
}

Program make_geo_server_program(const Program& main, const ServerPlan& plan, int server,
                                const PassRunner& runner) {
  fluid::ListenAndServAttrs listen;
  const std::array passes = {
      Pass{"add_sum_blocks", "Each slice adds the deltas that arrive.",
           [&](Program& program) {
             add_sum_blocks(program, plan, server, listen);
             add_table_sum_blocks(program, main.global_block(), plan, listen);
           }},
      Pass{"append_listen", "Block 0 serves.",
           [&](Program& program) { append_geo_listen(program, plan, server, listen); }},
  };
  Program program;
  program.set_random_seed(main.random_seed());
  program.set_op_library(main.op_library());
  runner.run(program, passes);
  record_server(program, plan, server);
  return program;
}

}  // namespace fleet::transpiler
