// Trains a program with several replicas, in one process or in several.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fluid/executor/compiled_program.h"
#include "fluid/executor/executor.h"

namespace fleet::fluid {

class ParallelExecutor;

struct ParallelExecutorOptions {
  bool use_cuda = false;
  // Of the program that minimize was called for; empty in a program that only tests.
  std::string loss_name = {};
  const Program* main_program = nullptr;  // null: the thread's default main program
  // Another one, whose scope this one takes.
  const ParallelExecutor* share_vars_from = nullptr;
  ExecutionStrategy exec_strategy = {};
  // Its num_trainers and trainer_id are those below.
  BuildStrategy build_strategy = {};
  int num_trainers = 1;
  int trainer_id = 0;
  // Where the startup program ran. Needed unless share_vars_from is given; must outlive this.
  Scope* scope = nullptr;
};

// CompiledProgram::with_data_parallel with an executor of its own. Used by one thread. With
// num_trainers above 1 the runtime is that of the startup program which ran on the scope: its
// gen_nccl_id leaves it there (strategies::attach made it; whoever holds it calls stop_worker).
class ParallelExecutor {
 public:
  // Throws UsageError for options that cannot be used.
  explicit ParallelExecutor(const ParallelExecutorOptions& options);
  ~ParallelExecutor();
  ParallelExecutor(const ParallelExecutor&) = delete;
  ParallelExecutor& operator=(const ParallelExecutor&) = delete;

  // One step. As Executor::run of a CompiledProgram.
  std::vector<Tensor> run(const std::vector<Fetch>& fetch, const Feed& feed = {});

 private:
  Scope& scope_;
  Executor executor_;
  CompiledProgram program_;
};

}  // namespace fleet::fluid
