// What Executor knows of a CompiledProgram.
#pragma once

#include <memory>
#include <optional>
#include <set>

#include "fluid/executor/compiled_program.h"
#include "fluid/executor/executor.h"

namespace fleet::fluid {

// How a step is run by replicas.
struct Replication {
  int count = 0;    // replicas of this process; 0: nobody says
  int threads = 0;  // that run them; 0: the executor's
  int trainers = 1;
  int trainer_id = 0;
  bool sums = false;  // of gradients, not means
};

struct CompiledProgram::State {
  const Program& program;
  std::string loss_name;
  DataParallelOptions options;
  bool data_parallel = false;
  std::optional<Program> rewritten;
  std::optional<Program> broadcast;
  // Of scopes that have rank 0's values.
  std::set<std::weak_ptr<const void>, std::owner_less<>> shared;

  bool trains() const { return !loss_name.empty(); }
  bool of_job() const { return trains() && options.build_strategy.num_trainers > 1; }
  // The program that each replica runs, of a job with so many.
  const Program& parallel(int replicas);
  // Gives every rank rank 0's persistable variables that are in the scope; null: not needed.
  const Program* sharing(const Scope& scope);
  // For an executor on this place.
  Replication replication(const Place& place) const;
};

}  // namespace fleet::fluid
