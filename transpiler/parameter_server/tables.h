// Tables whose rows trainers look up on the servers, instead of receiving them whole.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"

namespace fleet::transpiler {

// Parameters that ops with remote_prefetch look up: lookup_table, lookup_table_v2, nce and, unless
// the configuration has them whole, hierarchical_sigmoid; under GEO distributed tables too.
std::set<std::string, std::less<>> remote_tables(const fluid::Program& program,
                                                 const DistributeTranspilerConfig& config);

// Lookups of the plan's remote tables go to the servers: those of one table and one padding become
// one distributed_lookup_table, right after the op that makes the last of their ids; nce and
// hierarchical_sigmoid keep their places and learn where their tables are.
void place_remote_lookups(fluid::Program& program, const ServerPlan& plan, int trainer_id);

// In a startup program remote tables have their shape only, and so have empty ones.
void fake_remote_tables(fluid::Program& startup, const ServerPlan& plan);

// The lookups of a GEO trainer stay local; their ids tell which rows changed. Returns pairs of ids
// and table, by lookup.
std::vector<std::pair<std::string, std::string>> keep_lookups_local(fluid::Program& program);

}  // namespace fleet::transpiler
