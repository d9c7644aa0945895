// The trainer's side of a job with parameter servers.
#pragma once

#include "fluid/program/program.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {

struct TrainerOptions {
  int trainer_id = 0;  // the first logical shard of this worker
  std::string current_endpoint;
  bool wait_port = true;
};

struct ProgramPair {
  fluid::Program main;
  fluid::Program startup;
};

// Main: forward and backward, each gradient sent right after it is made, parameters received at
// the end. Startup: initialisers, then the parameters as the servers have them. `main` and
// `startup` are left as they are. Throws ProgramError when a result does not verify.
ProgramPair make_trainer_programs(const fluid::Program& main, const fluid::Program& startup,
                                  const ServerPlan& plan, const TrainerOptions& options,
                                  const PassRunner& runner);

// Records in a trainer's program what it is a part of.
void record_trainer(fluid::Program& program, const ServerPlan& plan, const TrainerOptions& options);

}  // namespace fleet::transpiler
