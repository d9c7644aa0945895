// Jobs without servers: communicators, all-reduce of gradients.
#pragma once

#include <string>
#include <vector>

#include "fluid/program/program.h"
#include "transpiler/parameter_server/trainer_program.h"
#include "transpiler/pass.h"

namespace fleet::transpiler {

struct CollectiveOptions {
  int rank = 0;
  int nranks = 1;
  // By rank; may be empty when the ranks find each other otherwise (MPI).
  std::vector<std::string> endpoints;
  std::string current_endpoint;
  int rings = 1;
  // Contributors of a step; at least nranks. The loss gradient is scaled by 1 / shards.
  int shards = 1;
  bool wait_port = true;
  // LocalSGD: one op averages when the runtime's schedule says so; else every step does.
  bool scheduled = false;
  // Gradients that follow each other are reduced by one op, up to this many bytes; 0: one by one.
  int64_t fuse_bytes = 0;
  // The ranks are threads of this process, each with a device of its own.
  bool in_process = false;
};

// Appends what makes the communicators of all rings, and what gives every rank the parameters of
// rank 0; with ranks in one process the communicators only.
std::vector<Pass> collective_startup_passes(const CollectiveOptions& options);

void record_collective(fluid::Program& program, const CollectiveOptions& options);

// GradAllReduce. Main: the loss gradient times 1/shards, each gradient summed over the ranks right
// after it is made, rings taking turns from the last gradient backwards. Startup: one communicator
// per ring, then every parameter from rank 0. One rank with one shard: unchanged.
ProgramPair make_all_reduce_programs(const fluid::Program& main, const fluid::Program& startup,
                                     const CollectiveOptions& options, const PassRunner& runner);

struct Nccl2Options {
  int trainer_id = 0;
  std::vector<std::string> endpoints;
  int nccl_comm_num = 1;
  bool use_hierarchical_allreduce = false;
  int hierarchical_allreduce_inter_nranks = 0;
  bool wait_port = true;
};

// nccl2. Startup makes the ids of all communicators; main is unchanged, its executor reduces.
ProgramPair make_nccl2_programs(const fluid::Program& main, const fluid::Program& startup,
                                const Nccl2Options& options, const PassRunner& runner);

}  // namespace fleet::transpiler
