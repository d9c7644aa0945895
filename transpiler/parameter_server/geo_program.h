// GEO: trainers train alone and exchange the changes of their parameters with the servers.
#pragma once

#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/parameter_server/trainer_program.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {

// Main: the user's program, then a `send` that tells the runtime of the step; it names the sparse
// tables and the variables with the rows that the step touched. Lookups of growing tables are
// lookup_remote_growing_tables, which has the runtime fetch rows that the trainer lacks. Startup:
// the parameters as the servers have them, then the start notice (trainer_program.h). `p.delta` is
// declared for each parameter p. Throws ProgramError when a result does not verify.
ProgramPair make_geo_trainer_programs(const fluid::Program& main, const fluid::Program& startup,
                                      const ServerPlan& plan, const TrainerOptions& options,
                                      const PassRunner& runner);

// One block for each slice and each growing table: p = p + p.delta.
fluid::Program make_geo_server_program(const fluid::Program& main, const ServerPlan& plan,
                                       int server, const PassRunner& runner);

}  // namespace fleet::transpiler
