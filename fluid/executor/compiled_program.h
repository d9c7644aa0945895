// Programs that several replicas run: each takes its part of a step's rows, and all take the mean
// of their gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "fluid/core/place.h"
#include "fluid/executor/build_strategy.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {

class CompiledProgram;

struct DataParallelOptions {
  BuildStrategy build_strategy = {};
  ExecutionStrategy exec_strategy = {};
  // Where the values come from that this program does not make itself, such as those of the program
  // that trains for one that tests: other ranks' values are not taken at the first run.
  const CompiledProgram* share_vars_from = nullptr;
  // A replica for each. Empty: as many as CPU_NUM, or one on a GPU; in a job with ranks as many
  // as its runtime has shards for this process.
  std::vector<Place> places = {};
  // Told once of hints that are set.
  Logger logger = Logger(LogLevel::kInfo);
};

// Executor::run runs it. Used by one thread at a time; copies share what was compiled. The program
// must outlive it, and counts as it is at the first run where it has to be rewritten (several
// trainers, kCustomized), else as it is at each run.
//
// With data parallelism, replicas are the logical shards of the executor: rows of the feed are cut
// into as many parts, gradients are summed by the tree of base/shard_tree.h, and there is one copy
// of the parameters. What each replica makes is fetched joined along dimension 0: of a mean loss
// one value a replica. With num_trainers above 1 gradients are summed over the processes as well:
// the executor, or the startup program that ran on its scope, must have the job's runtime
// (strategies::attach), and the first run begins with rank 0's persistable variables.
class CompiledProgram {
 public:
  explicit CompiledProgram(const Program& program = default_main_program(),
                           BuildStrategy build_strategy = {});
  ~CompiledProgram();
  CompiledProgram(const CompiledProgram&);
  CompiledProgram& operator=(const CompiledProgram&);

  // `loss_name` may be empty in a program that does not train. Throws UsageError for strategies
  // that cannot be used, and for a loss that the program does not have or is called for twice.
  CompiledProgram& with_data_parallel(const std::string& loss_name = "",
                                      DataParallelOptions options = {});

 private:
  friend class Executor;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fleet::fluid
