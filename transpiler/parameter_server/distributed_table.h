// Tables with is_distributed: row r of a table lives on server r modulo the number of servers, and
// on no trainer. Any number of tables, any update that takes selected rows.
#pragma once

#include <string>
#include <vector>

#include "fluid/ops/distributed/comm.h"
#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/training_ops.h"

namespace fleet::transpiler {

// Moves the updates of such tables from ops.params to ops.tables. Throws ProgramError
// (kNotSupported) for a table whose gradient is not selected rows, or is clipped or used by a norm
// of the whole.
void take_distributed_tables(const fluid::Program& program, TrainingOps& ops);

// The tables of a plan.
std::vector<PlacedTable> place_tables(const fluid::Program& program, const TrainingOps& ops,
                                      int servers);

// Trainer: all lookups of a table become split_ids, prefetch and a merge_ids for each padding,
// where the first of them was; its gradient is split by server and sent right after the op that
// makes it. Adds the control variables of the sends to `controls`.
void place_table_lookups(fluid::Program& program, const ServerPlan& plan, int trainer_id);
void send_table_gradients(fluid::Program& program, const ServerPlan& plan, int trainer_id,
                          int& next_control, std::vector<std::string>& controls);
// In a startup program tables have their shape only.
void fake_tables(fluid::Program& startup, const ServerPlan& plan);

// Server: for each table a block that averages and updates it, inside it a block that looks rows
// up; and one block that saves all tables. Notes the blocks and what is received.
void add_table_blocks(fluid::Program& program, const fluid::Program& origin, const ServerPlan& plan,
                      const TrainingOps& ops, int server, int32_t parent,
                      fluid::ListenAndServAttrs& listen, std::vector<std::string>& received);

}  // namespace fleet::transpiler
