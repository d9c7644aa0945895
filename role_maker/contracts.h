// The one rule by which environment variables say what a process is. A contract is the set of
// variables that one kind of launcher sets:
//
//   Paddle     triggered by TRAINING_ROLE, PADDLE_TRAINING_ROLE, PADDLE_PSERVERS*,
//              PADDLE_TRAINER_ENDPOINTS
//   torchrun   RANK together with WORLD_SIZE
//   Open MPI   OMPI_COMM_WORLD_RANK
//   Slurm      SLURM_PROCID together with SLURM_STEP_ID
//
// None triggered: a local job. Once triggered, the whole contract is needed. Paddle's wins over
// Open MPI's and Slurm's, which start processes without knowing their roles; torchrun's wins over
// those two likewise, and Open MPI's over Slurm's. Paddle's and torchrun's together must agree.
// docs/role_makers.md lists every variable.
#pragma once

#include <optional>

#include "base/environment.h"
#include "role_maker/cluster_spec.h"

namespace fleet::role_maker {

// What the environment says; validated. `is_collective` is what the user asked for: unset lets
// the variables decide. Throws UsageError (kEnvironment) with variable, value, expectation and
// fix. In jobs that MPI or Slurm started, job_id may be left empty: the ranks agree on one later.
ClusterSpec read_environment(const Environment& environment, std::optional<bool> is_collective);

}  // namespace fleet::role_maker
