// The interface behind the communication ops (send, recv, send_barrier, fetch_barrier,
// listen_and_serv, c_allreduce_sum, …). The executor carries it, strategies implement it; the
// engine itself knows no network.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "fluid/core/scope.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

// The logical shards of a step that this process computes, [begin, end) of total. The feed's rows
// are cut into end - begin equal parts; forward and backward run once per shard.
struct ShardRange {
  int begin = 0;
  int end = 1;
  int total = 1;

  int count() const { return end - begin; }
  bool operator==(const ShardRange&) const = default;
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
};

// Used by one thread at a time. Errors are thrown as fleet::Error at the blocking call.
class CommRuntime : public ProgramRuntime {
 public:
  virtual ShardRange shards() const = 0;

  // Brackets each run of a program that has communication ops.
  virtual void begin_step(const Program& program, uint64_t step) = 0;
  virtual void end_step(const Program& program, uint64_t step) = 0;

  // Rows of the batch that the next step computes.
  virtual void fed(int64_t) {}

  // Starts one op. Null when it is finished on return.
  virtual std::unique_ptr<CommToken> run(const CommCall& call) = 0;

  // The program whose persistable variables make up a checkpoint of the job; null: the program
  // that is run.
  virtual const Program* checkpoint_program() const { return nullptr; }
  // Before a checkpoint is written: puts the job's values of the checkpoint program's persistable
  // variables into `scope`. Every worker calls it; the answer is whether this one writes.
  virtual bool gather_persistables(Scope&) { return true; }
  // After a checkpoint was loaded into `scope`: hands the values to whoever holds them. Every
  // worker calls it, before the first step.
  virtual void spread_persistables(Scope&) {}
};

}  // namespace fleet::fluid
