// A parameter-server job of threads in one process: real programs, real sockets, one thread for
// every server and every worker. For tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fluid/executor/executor.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/worker/worker_runtime.h"
#include "tests/testing/delay_proxy.h"
#include "transpiler/config.h"

namespace fleet::testing {

// A net after its optimizer's minimize. Steps are numbered from 0.
struct TrainingTask {
  const fluid::Program* main = nullptr;
  const fluid::Program* startup = nullptr;
  std::string loss;
  // The rows [begin, end) of `parts` equal parts of a step's batch.
  std::function<fluid::Feed(int step, int begin, int end, int parts)> feed;
  int steps = 20;
  // Where trainers run, and with which kernels (null: those of the program).
  fluid::Place place = {};
  const fluid::KernelTable* kernels = nullptr;
};

// The place and the kernels of the trainers of all jobs, of tasks that say nothing else; the CPU.
struct TrainerPlace {
  fluid::Place place;
  const fluid::KernelTable* kernels = nullptr;
};
TrainerPlace& trainer_place();
fluid::Executor trainer_executor(const TrainingTask& task);

struct ThreadJob {
  int workers = 2;
  int servers = 2;
  int shards = 0;  // 0: one for each worker
  uint32_t lanes = 1;
  uint64_t window_bytes = uint64_t{32} * 1024 * 1024;  // of a server's gradients
  fluid::DType narrow_rows = fluid::DType::kFloat32;   // as ParameterServerConfig's
  transport::TransportChoice transport = transport::TransportChoice::kAuto;
  transpiler::DistributeTranspilerConfig config;
  // Workers reach servers through proxies with these faults, each with a seed of its own; TCP then.
  std::optional<ProxyFaults> faults;
  // Servers come only when every worker has begun to connect (over Unix sockets).
  bool workers_first = false;
  // Steps of single workers, by index, where they differ from the task's.
  std::vector<int> uneven_steps;
  // This worker joins the coordinator so much later than it reaches the servers (over TCP).
  int late_worker = -1;
  Duration join_delay = std::chrono::milliseconds(500);
  // What servers have after each step is kept. Workers wait for one another then.
  bool keep_steps = false;
  // Before each step, what the runtime is told that the step behind it will be fed with; may be
  // empty.
  std::function<fluid::Feed(int step, int begin, int end, int parts)> next_feed;
  // What takes turns as the trainer's program, step by step, made of the trainer program. Empty:
  // that program alone. Called once by each worker.
  std::function<std::vector<fluid::Program>(const fluid::Program& trainer)> programs;
  // Called by each server's thread between its startup program and serving; may be empty.
  std::function<void(const fluid::Program& startup, fluid::Scope&)> before_serving;
  // Called by each worker's thread between its startup program and its steps; may be empty.
  std::function<void(strategies::WorkerRuntime&, fluid::Executor&)> before_steps;
  // Called by each worker's thread after each step; may be empty.
  std::function<void(int worker, const fluid::Program& main, fluid::Executor&)> after_step;
  // Called by each worker's thread after its steps, before it stops; may be empty.
  std::function<void(int worker, strategies::WorkerRuntime&, fluid::Executor&)> after_steps;
};

// Values by name.
using Values = std::map<std::string, std::vector<std::byte>>;
// Of the program's parameters, or all its persistable variables, that have a value in the scope.
Values values_of(const fluid::Program& program, const fluid::Scope& scope, bool parameters_only);

// The mean of each step's losses over equal workers, a power of two of them, as one machine with
// the shards of all adds them up.
std::vector<float> mean_over_workers(const std::vector<std::vector<float>>& losses);

struct ThreadOutcome {
  std::vector<Values> parameters;          // by worker, as last received
  std::vector<std::vector<float>> losses;  // by worker and step: the mean over its own shards
  Values persistables;                     // as the servers have them, read by worker 0
  std::vector<Values> kept_steps;          // the same after each step, with keep_steps
  // By server: payload bytes on its data lanes.
  struct Server {
    uint64_t bytes_in = 0;
    uint64_t bytes_out = 0;
  };
  std::vector<Server> servers;
  uint64_t cuts = 0;  // by the proxies
  std::vector<std::string> errors;
};

ThreadOutcome train_in_threads(const TrainingTask& task, const ThreadJob& job);

// The same steps on one machine with as many logical shards.
struct LocalOutcome {
  Values parameters;
  Values persistables;
  std::vector<float> losses;
  std::vector<Values> kept_steps;  // persistables after each step, with keep_steps
};
LocalOutcome train_locally(const TrainingTask& task, int shards, bool keep_steps = false);

// "p after step 3", for all that a job keeps after a step and one machine has otherwise.
std::vector<std::string> differing_steps(const std::vector<Values>& job,
                                         const std::vector<Values>& local);

}  // namespace fleet::testing
