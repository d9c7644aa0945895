// Tables with is_distributed: row r of a table lives on server r modulo the number of servers, and
// on no trainer. Any number of tables, any update that takes selected rows. A table whose update
// stays with one server (stays_whole) is a sparse table like others. Growing tables: rows live on
// servers by the buckets of their ids.
#pragma once

#include <string>
#include <vector>

#include "fluid/ops/distributed/comm.h"
#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/training_ops.h"

namespace fleet::transpiler {

// Moves the updates of such tables from ops.params to ops.tables; the lookups of one that stays
// whole become ordinary ones. Throws ProgramError (kNotSupported) for a table whose gradient is not
// selected rows, and for a growing one whose update looks at more than one row, whose delays are
// compensated, or that nobody trains.
void take_distributed_tables(fluid::Program& program, TrainingOps& ops,
                             const DistributeTranspilerConfig& config);

// The same of growing tables under GEO, whose trainers update rows themselves. Throws ProgramError
// (kNotSupported) for a table that counts lookups or shows.
void take_growing_tables(const fluid::Program& program, const fluid::Program& startup,
                         TrainingOps& ops);

// The tables of a plan that has its servers and its form.
void place_tables(const fluid::Program& program, const TrainingOps& ops, ServerPlan& plan);

// Trainer: lookups of growing tables become as few ops as their order allows, each of which asks
// all servers once (lookup_remote_growing_tables).
void place_growing_lookups(fluid::Program& program, const ServerPlan& plan);

// Trainer: all lookups of a table become split_ids, prefetch and a merge_ids for each padding,
// where the first of them was, or right after the op that makes the last of their ids; its gradient
// is split by server and sent right after the op that makes it. Adds the control variables of the
// sends to `controls`.
void place_table_lookups(fluid::Program& program, const ServerPlan& plan, int trainer_id);
void send_table_gradients(fluid::Program& program, const ServerPlan& plan, int trainer_id,
                          int& next_control, std::vector<std::string>& controls);
// In a startup program tables have their shape only.
void fake_tables(fluid::Program& startup, const ServerPlan& plan);

// Server: what it receives of a table's gradient, one variable for each shard where it averages.
std::vector<std::string> table_gradients(const ServerPlan& plan, const PlacedParam& table,
                                         int server);
// Declares the rows of a table that live there, their gradient, and what is received of it.
void declare_table(fluid::Block& global, const fluid::Block& origin, const ServerPlan& plan,
                   const PlacedParam& table, int server);
// Inside `parent`, a block for each table that looks rows up, and one that saves all tables.
void add_table_services(fluid::Program& program, const ServerPlan& plan, int server, int32_t parent,
                        fluid::ListenAndServAttrs& listen);

}  // namespace fleet::transpiler
