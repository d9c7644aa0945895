// Tables whose rows trainers look up on the servers, instead of receiving them whole.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"

namespace fleet::transpiler {

// Parameters that ops with remote_prefetch look up (OpSchema::table_slot): lookup_table,
// lookup_table_v2, nce, ops of one's own and, unless the configuration has them whole,
// hierarchical_sigmoid; under GEO distributed tables too.
std::set<std::string, std::less<>> remote_tables(const fluid::Program& program,
                                                 const DistributeTranspilerConfig& config);

// Lookups of the plan's remote tables go to the servers: those of one table, one op type and one
// padding become one distributed_lookup_table, right after the op that makes the last of their ids;
// nce and hierarchical_sigmoid keep their places and learn where their tables are.
void place_remote_lookups(fluid::Program& program, const ServerPlan& plan, int trainer_id);

// In a startup program remote tables have their shape only, and so have empty ones.
void fake_remote_tables(fluid::Program& startup, const ServerPlan& plan);

// Tables of sparse lookup_table and nce ops, trained or not: those that Paddle's trainers do
// not receive at the start, whether their rows are remote or not.
std::set<std::string, std::less<>> unreceived_tables(const fluid::Program& program);

// The lookups of a GEO trainer stay local: those of lookup_table lose remote_prefetch, those of
// lookup_table_v2 keep it, as in Paddle, without an effect.
void keep_lookups_local(fluid::Program& program);

// What tells a GEO trainer which rows of `tables` changed: pairs of ids and table, by lookup op,
// forward and backward. As in Paddle, a pair is left out where the last one of these ids had
// the same table.
std::vector<std::pair<std::string, std::string>> looked_up_rows(
    const fluid::Program& program, const std::set<std::string, std::less<>>& tables);

}  // namespace fleet::transpiler
