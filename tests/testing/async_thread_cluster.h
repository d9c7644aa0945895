// An asynchronous parameter-server job of threads in one process: real programs, real sockets, one
// thread for every server and every worker, and more for trainer threads. For tests.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/protocol/async_server.h"
#include "strategies/parameter_server/worker/worker_runtime.h"
#include "tests/testing/thread_cluster.h"

namespace fleet::testing {

struct AsyncThreadJob {
  int workers = 2;
  int servers = 2;
  uint32_t lanes = 1;
  fluid::DType narrow_rows = fluid::DType::kFloat32;  // as ParameterServerConfig's
  uint32_t hot_row_steps = 0;                         // as well
  strategies::AsyncOptions options;
  bool runtime_split = true;
  // Fields of the mode are set to fit the options and the split.
  transpiler::DistributeTranspilerConfig config;
  // Workers reach servers through proxies with these faults, each with a seed of its own.
  std::optional<ProxyFaults> faults;
  std::vector<int> uneven_steps;  // by worker, where they differ from the task's
  // Times that trainer threads begin, and go on from where those before them ended; more than one
  // has a worker's only thread be a trainer thread, too.
  int rounds = 1;
  strategies::OnNonfinite on_nonfinite = strategies::OnNonfinite::kStop;
  // What servers have after each step of the only worker's only thread is kept.
  bool keep_steps = false;
  // What takes turns as the trainer's program, step by step, a thread one ahead of the one before:
  // made of the trainer program as the transpiler makes it with or without runtime_split. Empty:
  // that program alone. Called once by each worker.
  using Transpile = std::function<fluid::Program(bool runtime_split)>;
  std::function<std::vector<fluid::Program>(const Transpile& transpile)> programs;
  // Called by each server's thread between its startup program and serving; may be empty.
  std::function<void(const fluid::Program& startup, fluid::Scope&)> before_serving;
  // Workers of one thread end their executors before they stop.
  bool drops_executor = false;
  // Called by each worker behind its startup program; may be empty.
  std::function<void(strategies::WorkerRuntime&, fluid::Executor&)> before_steps;
  // Called by each worker's first thread after each step; may be empty.
  std::function<void(int worker, const fluid::Program& main, fluid::Executor&)> after_step;
  // Called by each worker's first thread after its steps; may be empty.
  std::function<void(int worker, strategies::WorkerRuntime&, fluid::Executor&)> after_steps;
};

struct AsyncThreadOutcome {
  Values persistables;                        // as the servers have them at the end
  std::vector<Values> kept_steps;             // the same after each step, with keep_steps
  std::vector<Values> parameters;             // by worker, as they end in the worker's scope
  std::vector<std::vector<float>> losses;     // by worker: of each step of its first thread
  strategies::StalenessStatistics staleness;  // of server 0
  std::vector<ThreadOutcome::Server> servers;
  std::vector<std::vector<strategies::AsyncEvent>> events;  // by server
  uint64_t cuts = 0;                                        // by the proxies
  std::vector<std::string> errors;
};

AsyncThreadOutcome train_async_in_threads(const TrainingTask& task, const AsyncThreadJob& job);

}  // namespace fleet::testing
