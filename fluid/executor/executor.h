// Runs programs. Those that several replicas run are fluid/executor/compiled_program.h.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/kernels/comm_runtime.h"
#include "fluid/kernels/kernel_table.h"
#include "fluid/program/variable.h"

namespace fleet::fluid {

using Feed = std::vector<std::pair<std::string, Tensor>>;

// What to fetch: a variable, or its name.
struct Fetch {
  Fetch(const Variable& variable) : name(variable.name()) {}
  Fetch(std::string name_) : name(std::move(name_)) {}
  Fetch(const char* name_) : name(name_) {}
  std::string name;
};

struct ExecutorOptions {
  // Parts that a step's rows are cut into (0 means 1); forward and backward run once per part,
  // gradients are summed by the tree of base/shard_tree.h and divided by the number of parts. A
  // program whose runtime is attached follows that runtime instead.
  int logical_shards = 1;
  // Report the first op, variable and step that turns NaN or infinite. Not given:
  // FLAGS_check_nan_inf.
  std::optional<bool> check_nan_inf = std::nullopt;
  // On a device, throw for an op that has no kernel there (ProgramError, not supported), instead of
  // running it on the CPU with copies of what it reads and writes (fluid/kernels/op_places.h).
  bool strict_place = false;
  // On a CUDA device, have it repeat steps by itself: once two steps had all values at the same
  // places and in the same shapes, the work of a step is recorded, and started as a whole in later
  // ones (a CUDA graph). The results have the same bits. What it cannot be done for is run as
  // always, and a warning says why, once: programs of which an op runs on the CPU, draws random
  // numbers (dropout may), or exchanges values with other processes; sequences; steps that are
  // profiled, checked for NaN or watched by a job.
  bool cuda_graph = false;
  // Kernels to run with, whatever the program; null: those of each program (kernel_table). Must
  // outlive the executor.
  const KernelTable* kernels = nullptr;
  // Threads that run the shards of a local step, 1 to kMaxThreads. Not given: CPU_NUM.
  static constexpr int kMaxThreads = 1024;
  std::optional<int> threads = std::nullopt;
  // Threads that compute an op, 1 to kMaxThreads; the bits are the same for any number. Not given:
  // FLEET_NUM_THREADS; by default the cores that this process may use, divided by the processes of
  // its job that run on the same ones (core_share in base/process/usable_cores.h). They begin with
  // the first op that is large enough. Where shards run at once, each of their ops has one thread.
  std::optional<int> op_threads = std::nullopt;
  // Threads that compute ops, but the caller's, each stay on a core of this process's share, where
  // it is known which those are. Not given: FLEET_PIN_THREADS.
  std::optional<bool> pin_threads = std::nullopt;
  // Folder for the files that say where the time of steps went; empty: they are not written. Not
  // given: FLAGS_profile.
  std::optional<std::string> profile = std::nullopt;
};

// The options with the environment's values in place of those that are not given, and defaults
// where it has none: false, 1 thread for shards, a share of the cores for ops, no profile. An
// Executor calls it when it is made; only places.h takes another setting from there. Throws
// UsageError for a value that cannot be used.
ExecutorOptions with_environment(ExecutorOptions options);

// How a program runs, compiled: immutable, shared by threads. Made for (program, feed names,
// fetches, place), whatever the batch size.
class Plan;
class CompiledProgram;
class DevicePoint;

// fluid/executor/training/dataset_run.h
struct DatasetRun;
struct DatasetResult;
namespace data {
class DatasetBase;
}

// A step that was started (Executor::start). Movable. What it fetched may be dropped unread.
class StartedStep {
 public:
  explicit StartedStep(std::vector<Tensor> fetched);
  ~StartedStep();
  StartedStep(StartedStep&&) noexcept;
  StartedStep& operator=(StartedStep&&) noexcept;

  // What was fetched, in the order of the fetches: the caller's own, in host memory. Waits until
  // it is there, and for no step that was started later. To be called once.
  std::vector<Tensor> wait();

 private:
  std::vector<Tensor> fetched_;
  std::unique_ptr<DevicePoint> made_;  // null where all is in host memory
};

// Compiles each program once and keeps the plan. Persistable variables live in the executor's
// scope (or the one given), everything else in a workspace of the calling thread's own. One
// executor is used by one thread; several executors may share a scope and plans (Hogwild).
//
// A program must outlive its last run. Every change of it counts at the next run: ops that are
// added, removed or replaced, changed attributes of an op, another seed.
//
// A program that trains (it has ops of role backward, or sends to servers) runs in this order: ops
// of role lr_sched, then per logical shard everything up to the last op of role forward, backward
// or loss or of type send, then the rest once. Without a communication runtime, what the shards
// make and the rest reads (the gradients) is averaged by the tree of base/shard_tree.h. Persistable
// floating-point variables that the forward part writes (moving statistics) start each shard from
// their value at the step's begin and become the same mean of what the shards made of them.
class Executor {
 public:
  explicit Executor(Place place = CPUPlace(), ExecutorOptions options = {});
  // Shares the scope of another owner.
  Executor(Place place, Scope& scope, ExecutorOptions options = {});
  ~Executor();
  Executor(Executor&&) noexcept;
  Executor& operator=(Executor&&) noexcept;

  // Runs block 0 once: a whole step. Every data variable that is used must be fed. The fetched
  // tensors are the caller's own, in host memory. A fetched loss is the mean over the shards,
  // anything else is joined by rows. Throws ProgramError for wrong feeds and fetches, PeerError
  // from communication.
  std::vector<Tensor> run(const Program& program, const Feed& feed = {},
                          const std::vector<Fetch>& fetch = {});
  // The same of the calling thread's default main program.
  std::vector<Tensor> run(const Feed& feed, const std::vector<Fetch>& fetch);
  // The same, but on a device it does not wait for the step: what is fetched is read from it by
  // wait(), while the device works on later steps. A run without fetches does not wait either. What
  // the device's work fails with is thrown by a later call.
  StartedStep start(const Program& program, const Feed& feed, const std::vector<Fetch>& fetch);

  // The same of replicas (compiled_program.h): what is fetched of each replica is joined by rows,
  // losses too. Throws UsageError where the program's strategy does not fit the job or the place,
  // ProgramError (kPrecondition) for several trainers without a runtime.
  std::vector<Tensor> run(CompiledProgram& program, const Feed& feed = {},
                          const std::vector<Fetch>& fetch = {});

  // Trains on the data set's batches, from its first record to its last: as a loop that calls run()
  // for each batch, and with its bits, while other threads read ahead. Trainer threads take batches
  // where the program's job is asynchronous, or where DatasetRun::hogwild says so, `run.thread` or
  // set_thread() of the data set of them; there, what is computed depends on which thread takes
  // which batch. Where workers take their steps together, all stop when the first of them has no
  // batch left. Throws what the data set's batches and run() throw, UsageError for `run` that
  // cannot be; then no thread is left.
  DatasetResult train_from_dataset(const Program& program, data::DatasetBase& dataset,
                                   const DatasetRun& run);
  DatasetResult train_from_dataset(CompiledProgram& program, data::DatasetBase& dataset,
                                   const DatasetRun& run);
  // The same without backward and updates, whatever ops the program has: its parameters stay as
  // they are. One batch after the other.
  DatasetResult infer_from_dataset(const Program& program, data::DatasetBase& dataset,
                                   const DatasetRun& run);

  // Waits for the steps that were run here and that a device may still be working on, and tells
  // whoever watches them (FiniteWatch) what was not finite in them: before what they made is saved,
  // say. Throws what the watch throws.
  void look_at_steps();

  // Runs one block on the given scope, for servers: variables that the scope lacks are made in a
  // workspace of their own. Random numbers are those of `step`, from 0 on; without it the executor
  // counts its runs of the program.
  void run_block(const Program& program, int32_t block, Scope& scope,
                 std::optional<uint64_t> step = std::nullopt);

  // Steps of the program that are over, replicas' included; the next one draws the random numbers
  // of that step. A job that goes on sets it to what the job before it had.
  uint64_t steps_run(const Program& program) const;
  void set_steps_run(const Program& program, uint64_t steps);
  // Called after each run of the program by this very executor (not by those that share with it),
  // replicas' included, with the steps that are over; on a device, start() may still be working on
  // the last. Empty: nobody is. It may run other programs.
  using AfterRun = std::function<void(Executor& executor, uint64_t steps)>;
  void set_after_run(const Program& program, AfterRun after);
  bool has_after_run(const Program& program) const;

  // An executor for another thread: same scope, options, runtime and plans, a workspace of its own.
  // Threads that compute ops are shared, too: while they compute one, other executors' ops have
  // only the thread that runs them.
  Executor share() const;
  // The same on another scope, which must outlive it, for threads that all compute: their ops have
  // one thread.
  Executor share(Scope& scope) const;

  Scope& scope();
  const Place& place() const;
  // For programs that carry no runtime of their own.
  void set_comm_runtime(std::shared_ptr<CommRuntime> runtime);
  // For programs whose runtime brings none. Must outlive this and what shares with it; may be null.
  void set_finite_watch(FiniteWatch* watch);

 private:
  void tell_run(const Program& program);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fleet::fluid
