// The interface behind the communication ops (send, recv, send_barrier, fetch_barrier,
// listen_and_serv, c_allreduce_sum, …). The executor carries it, strategies implement it; the
// engine itself knows no network. It stands here, below the executor, because strategies implement
// it without the executor (strategies/collective depends on kernels only), and its calls speak of
// the values that kernels do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/kernels/finite_watch.h"
#include "fluid/program/program.h"
#include "fluid/tables/table_options.h"

namespace fleet::fluid {
namespace tables {
struct PassRule;
struct TableStatistics;
}  // namespace tables

// The logical shards of a step that this process computes, [begin, end) of total. The feed's rows
// are cut into end - begin equal parts; forward and backward run once per shard.
struct StepShards {
  int begin = 0;
  int end = 1;
  int total = 1;

  int count() const { return end - begin; }
  bool operator==(const StepShards&) const = default;
};

// One execution of one communication op. `inputs` and `outputs` are the values of the op's
// variables, slot by slot in the order of slot names. The op's address identifies it as long as
// its plan lives.
struct CommCall {
  const Program& program;
  const Block& block;
  const Operator& op;
  Scope& scope;
  std::span<Value* const> inputs;
  std::span<Value* const> outputs;
  uint64_t step = 0;  // steps of this program run before, by this runtime's count
  int shard = 0;      // which logical shard runs; -1 for ops that run once per step
};

// An operation under way. Buffers that it names are neither reused nor changed before it is done.
class CommToken {
 public:
  virtual ~CommToken() = default;
  virtual bool done() const = 0;
  // Blocks until done; throws PeerError. Called on the thread that runs the step.
  virtual void wait() = 0;
  // Where the results are on a device: what this thread puts there next finds them, and the host
  // does not wait. wait() is still to be called, and tells how it ended. False where that cannot
  // be.
  virtual bool lead_device() { return false; }
};

// Used by one thread at a time. Errors are thrown as fleet::Error at the blocking call.
//
// It is the keeper of the tables that a startup program leaves to servers (fake_init): whichever
// program looks rows of one up on that scope, its op comes to run(). lookup_table and
// lookup_table_v2 are done then; nce and hierarchical_sigmoid find their rows in the table's value
// here.
class CommRuntime : public ProgramRuntime, public Keeper {
 public:
  virtual StepShards shards() const = 0;

  // Whether ops that say so (OpSchema::takes_devices) are given tensors in the memory of this
  // device. Asked before a program with such ops is compiled, by every process of the job that runs
  // it; may wait for the others.
  virtual bool sums_on(const Place&) { return false; }
  // Before the host waits for such a device: waits for the operations whose results the device
  // waits for (CommToken::lead_device), as CommToken::wait() does.
  virtual void wait_for_leads() {}

  // Brackets each run of a program that has communication ops.
  virtual void begin_step(const Program& program, uint64_t step) = 0;
  virtual void end_step(const Program& program, uint64_t step) = 0;

  // Rows of the batch that the next step computes.
  virtual void fed(int64_t) {}
  // What the step after the next one of the program will surely be fed with, by variable. A hint:
  // what depends on it may be asked for meanwhile. Nobody has to give it.
  using NextFeed = std::span<const std::pair<std::string, Tensor>>;
  virtual void will_feed(const Program&, NextFeed) {}

  // Trainer threads of one process, by number from 0 (fluid/executor/training/trainer_threads.h).
  // `scope` is the thread's own, `parent` the one whose values it began with. Every thread enters
  // before any trains. UsageError where the runtime has one training thread.
  virtual void enter_thread(uint32_t thread, Scope& scope, const Scope& parent);
  // The thread trains no more; the others do not wait for it. Its values are about to become the
  // parent's, of which the runtime then knows what it knows of them. One thread at a time calls it.
  virtual void leave_thread(Scope& /*scope*/, Scope& /*parent*/) {}
  virtual bool has_trainer_threads() const { return false; }
  // Whether workers take their steps together, so that one cannot go on while another one waits for
  // something else.
  virtual bool steps_together() const { return false; }
  // Of such workers: how many of the next `most` steps all can take, where this one can take
  // `mine`. Every worker that still trains calls it, with the same `most`.
  virtual int common_steps(int mine, int most) {
    (void)most;
    return mine;
  }

  // Starts one op. Null when it is finished on return.
  virtual std::unique_ptr<CommToken> run(const CommCall& call) = 0;

  // In the middle of a step: adds up, by the tree of base/shard_tree.h, what all logical shards of
  // the step give, whichever process computes them; `parts` are this process's, in their order, of
  // `count` numbers each. Every process calls it at the same place of its step, and waits for the
  // others. UsageError where the shards of a step do not meet.
  virtual void sum_shards(const CommCall& call, std::span<const double* const> parts, double* out,
                          size_t count);

  // Told of steps whose loss or parameters are not finite; null: nobody is.
  virtual FiniteWatch* finite_watch() { return nullptr; }

  // The program whose persistable variables make up a checkpoint of the job; null: the program
  // that is run.
  virtual const Program* checkpoint_program() const { return nullptr; }
  // Before a checkpoint is written: puts the job's values of the checkpoint program's persistable
  // variables into `scope`, a child of the scope that this worker trains on, where those that only
  // this worker has may stay. Every worker calls it; the answer is whether this one writes.
  virtual bool gather_persistables(Scope&) { return true; }
  // What a model has that is about to be written.
  struct ModelValues {
    std::vector<std::string> names;   // variables
    std::vector<std::string> tables;  // growing ones, where others keep their rows
    bool states = true;               // of the tables' optimizers
  };
  // The same of these values, and perhaps of others; `trained`: the scope that this worker trains
  // on. Where there are tables, workers wait for each other: values and rows are of one moment, at
  // which nobody trains, and whoever keeps rows has them set apart for save_table().
  virtual bool gather(const ModelValues& values, Scope& trained, Scope& scope) {
    (void)values;
    (void)trained;
    return gather_persistables(scope);
  }
  // Whether others keep the rows of growing tables. The worker that writes a model has them write
  // what gather() set apart of a table, into files of `folder` with names that begin with `name`,
  // or drop it. UsageError tells why somebody cannot.
  virtual bool keeps_tables() const { return false; }
  struct TableFiles {
    std::vector<std::string> names;
    tables::TableOptions options;  // of the table
  };
  virtual TableFiles save_table(const std::string& table, const std::filesystem::path& folder,
                                const std::string& name);
  virtual void drop_tables(std::span<const std::string> /*tables*/) noexcept {}
  // The opposite, before the first step, and by every worker: each of those others reads its own
  // rows from the files of all. When one of them cannot, none has changed a table.
  using FilesOfTables = std::map<std::string, std::vector<std::filesystem::path>>;
  virtual void load_tables(const FilesOfTables& files);
  // The end of a pass of a growing table, wherever its rows are. Every worker calls it, between two
  // steps; returns how many rows went. `scope`: where this worker trains.
  virtual uint64_t end_pass(const std::string& table, const tables::PassRule& rule, Scope& scope);
  // Where others keep the rows: what changed in such a table since the last delta, as a file of
  // each, with a name that says which. Every worker calls it, between two steps; returns the paths.
  virtual std::vector<std::filesystem::path> save_table_delta(const std::string& table,
                                                              const std::filesystem::path& file,
                                                              Scope& scope);
  // What such a table holds and did, wherever its rows are. Any worker calls it.
  virtual tables::TableStatistics table_statistics(const std::string& table, const Scope& scope);

  // After a checkpoint was loaded into `scope`: hands the values to whoever holds them. Every
  // worker calls it, before the first step.
  virtual void spread_persistables(Scope&) {}

  // A checkpoint that every worker writes, or reads, a part of. Between two steps all workers call
  // begin_saving(): what `scope`, where this worker trains, and the others have sent or changed
  // counts then, and nobody trains before all have called end_saving(). In between read_values()
  // puts the job's values of any of the checkpoint program's persistable variables into `scope`, a
  // child of that one, where those that this worker has may stay.
  virtual void begin_saving(Scope&) {}
  virtual void read_values(std::span<const std::string> names, Scope& scope) {
    (void)names;
    (void)scope;
  }
  virtual void end_saving() {}
  // Before the first step, the values of these variables that `scope` has, to whoever holds them.
  // Every worker calls it, each with other variables or none; then start_from(), with the scope
  // that it trains on, which has the values of all that it needs.
  virtual void give_values(std::span<const std::string> names, Scope& scope) {
    (void)names;
    (void)scope;
  }
  virtual void start_from(Scope&) {}
};

// UsageError: a program whose runtime is not one with trainer threads.
[[noreturn]] void throw_no_trainer_threads(const char* got);

}  // namespace fleet::fluid
