// The servers' side of a job with parameter servers.
#pragma once

#include <string>

#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/parameter_server/update_phases.h"
#include "transpiler/pass.h"
#include "transpiler/training_ops.h"

namespace fleet::transpiler {

// The program of one server: block 0 listens; then a block for the learning rate, if the program
// has a schedule, and one block for each slice that lives here: average the shards' gradients,
// regularize, update. A server without slices and schedule has one empty block. The program does
// not depend on which trainer asks for it. `main` is the user's own program, `server` an index
// into plan.endpoints. Throws ProgramError when the result does not verify.
fluid::Program make_server_program(const fluid::Program& main, const TrainingOps& ops,
                                   const ServerPlan& plan, const UpdatePhases& phases, int server,
                                   const PassRunner& runner);

}  // namespace fleet::transpiler
