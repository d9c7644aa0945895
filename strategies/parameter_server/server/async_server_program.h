// What an asynchronous server's program says about its slices, and the blocks that an update runs.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/executor/executor.h"
#include "fluid/ops/distributed/comm.h"
#include "strategies/parameter_server/server/async_parameter_server.h"
#include "strategies/parameter_server/server/parameter_watch.h"

namespace fleet::strategies {

// One optimize block of listen_and_serv.
struct AsyncOptimizeBlock {
  int32_t block = -1;
  std::string gradient;  // what arrives: "fc_w@GRAD.block1", or "fc_w.block1.delta"
  std::string value;     // the parameter's slice: "fc_w.block1"
  // The slice as each trainer was given it last, by trainer; empty unless delays are compensated.
  std::vector<std::string> backups;
  // What comes is added to the value or replaces it: no update op tells whether it is finite.
  bool plain = false;
  std::string trainer_id;  // the variable that says whose gradient it is; empty with `backups`
};

struct AsyncServerProgram {
  fluid::ListenAndServAttrs listen;
  std::vector<AsyncOptimizeBlock> blocks;  // by name of the value
};

// Throws ProgramError when the program is not one of an asynchronous server (modes 1 to 3), or
// compensates delays of another number of trainers.
AsyncServerProgram read_async_server_program(const fluid::Program& program,
                                             const fluid::Operator& listen, int trainers);

// Runs the blocks of an asynchronous server's program on its scope. One thread at a time; program
// and scope must outlive it.
//
// A learning-rate schedule counts the gradients of all trainers, merged ones each: the k-th uses
// what a local run uses in step k - N + 1 for N trainers, and the first N what it uses in its first
// (the counter of an asynchronous program starts N - 1 lower than that of a local one). So with one
// trainer the rates are those of a local run, and with N every rate serves as many gradients.
// Behind a loaded counter every gradient counts.
class AsyncServerSteps {
 public:
  AsyncServerSteps(const fluid::Program& program, AsyncServerProgram parsed, fluid::Scope& scope);

  // The variables of the program as a server keeps them. The scope must have their initial values.
  // The model calls back into this object.
  AsyncServerModel make_model();

 private:
  struct Backup {
    std::vector<fluid::Tensor*> trainers;
    std::vector<bool> own;  // by trainer: the tensor is no version of the slice, but one of rows
    fluid::Tensor* trainer_id = nullptr;
  };

  void read_schedule();
  void run_rate(uint64_t gradients);
  void run_slice(const AsyncOptimizeBlock& block, uint64_t step);
  void add_slice(size_t block, ServerModel& model);
  void add_readable(ServerModel& model);
  void note_value(uint32_t worker, uint32_t slice, const fluid::Tensor& value);
  void note_rows(uint32_t worker, uint32_t slice, const std::vector<int64_t>& rows,
                 const fluid::Tensor& value);

  fluid::Program program_;
  AsyncServerProgram parsed_;
  fluid::Scope& scope_;
  ParameterWatch watch_;
  fluid::Executor executor_;
  std::string counter_;                  // the schedule's; empty: none
  std::optional<double> counter_start_;  // its value before the first gradient
  std::vector<Backup> backups_;          // by slice
};

}  // namespace fleet::strategies
