// The blocks that a step or an update of a server runs, in every mode.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/executor/executor.h"
#include "fluid/ops/distributed/server_program.h"
#include "strategies/parameter_server/server/parameter_watch.h"
#include "strategies/parameter_server/server/server_lanes.h"
#include "strategies/parameter_server/server/trainer_backups.h"

namespace fleet::strategies {

// Runs the blocks of a server's program on its scope: what comes after the sum over contributors,
// which the server makes itself. One thread at a time, but that shards of the model may be updated
// by several; program and scope must outlive it.
//
// Schedules: a synchronous server counts its steps. An asynchronous one counts the gradients of all
// trainers, merged ones each: the k-th uses what a local run uses in step k - N + 1 for N trainers,
// and the first N what it uses in its first (the counter of an asynchronous program starts N - 1
// lower than that of a local one). So with one trainer the rates are those of a local run, and with
// N every rate serves as many gradients. Behind a loaded counter every gradient counts.
class ServerSteps {
 public:
  // `lanes`: threads that may run blocks at once. They count among those that compute ops
  // (fluid::ExecutorOptions::op_threads).
  ServerSteps(const fluid::Program& program, fluid::ServerProgram parsed, fluid::Scope& scope,
              uint32_t lanes = 1);

  // The variables of the program as a server keeps them. The scope must have their initial
  // values. Shards and rate of the model call back into this object.
  ServerModel make_model();

 private:
  void run_rate(uint64_t count);
  void start_counting();
  void run_slice(size_t slice, const StepUpdate& update);
  void clear_parts(int32_t block);
  void make_kept(const fluid::Block& block);
  void add_slice(size_t slice, ServerModel& model);
  StepExchange make_exchange(size_t index);
  transport::MutableBytes place_of(const fluid::ExchangedRows& rows, size_t part);
  // Any thread.
  const fluid::Program& program_for(int contributors);

  const fluid::Program& program_;
  fluid::ServerProgram parsed_;  // slices by name of the value
  fluid::Scope& scope_;
  ParameterWatch watch_;
  fluid::Executor executor_;
  // One for each slice: different slices may be updated by different threads at the same time.
  std::vector<fluid::Executor> slice_executors_;
  // By the number of shards that contributed.
  std::map<int, std::unique_ptr<fluid::Program>> programs_;
  std::mutex programs_mutex_;
  const fluid::Program* full_ = nullptr;
  uint64_t steps_before_ = 0;            // of the job, before the first one here
  std::optional<double> counter_start_;  // its value before the first gradient
  std::optional<TrainerBackups> backups_;
  fluid::Tensor no_tensor_;  // of growing tables
};

}  // namespace fleet::strategies
