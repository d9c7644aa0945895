// Jobs without servers: communicators, all-reduce of gradients.
#pragma once

#include <string>
#include <vector>

#include "fluid/program/program.h"
#include "transpiler/pass.h"
#include "transpiler/trainer_program.h"

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
};

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
