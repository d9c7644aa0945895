// A block of a program, compiled: which op runs when, on which values, in which buffers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/core/place.h"
#include "fluid/kernels/kernel_table.h"
#include "fluid/ops/op_schema.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

struct PlanVar {
  std::string name;
  const VarDesc* desc = nullptr;
  Place place;             // where the value is
  int copy_of = -1;        // the variable at its home, of which this is what another place has
  bool in_scope = false;   // persistable: the value is the scope's, else the workspace's
  bool outer = false;      // of an enclosing block: the value is the enclosing workspace's
  int feed = -1;           // position among the feeds
  int buffer = -1;         // shared buffer of the workspace; -1: memory of its own
  bool may_block = false;  // kernels may leave an image in blocks of channels here
  bool written = false;
  bool fed_and_written = false;  // the fed tensor is copied, so that the caller's stays as it is

  bool is_dense() const {
    return desc == nullptr || (desc->kind == VarKind::kLodTensor && desc->typed);
  }
};

struct PlanOp {
  const Operator* op = nullptr;
  const OpSchema* schema = nullptr;  // the op's row (schema_of)
  Place place;                       // where it runs, and where its variables are (but for
                                     // inputs that OpPlaces::of_input puts elsewhere)
  bool copies = false;               // its input to its output, which is at another place
  // A copy to the host that only the runtime looks at before it has done its part, so that nobody
  // waits for it before the runtime is called; or one of what the runtime wrote to a device.
  bool staged = false;
  // Variables, slot by slot in the order of slot names; -1: an output that nobody wants.
  std::vector<int> inputs;
  std::vector<int> outputs;
  // The next op's kernel may put this one's work on the device (KernelContext::more_follow).
  bool with_next = false;
  // So many ops, this one and those behind it, may run at once; 0: none begin here. And how many of
  // those that may are before this one.
  int beside = 0;
  int before = 0;
  bool communication = false;
  // Of a communication op: its inputs, and what they are views of.
  std::vector<int> memory_read = {};
  // The CommRuntime runs first, and fetches the rows of a table that the op's kernel reads.
  bool fetches_table = false;
  // Position among the inputs of the table whose rows it looks up; -1: it looks none up, or is told
  // where they are.
  int table = -1;
  // Communication ops (positions in the plan) that must be done before this op may run, because
  // it changes what they read, or touches what they write.
  std::vector<int> waits;
  int lod_from = -1;  // flat input whose sequence structure the outputs take over
  // For an op that runs a block: its plan, and the variables of this plan that it touches.
  std::shared_ptr<const class Plan> block = nullptr;
  std::vector<int> block_vars = {};
};

struct PlanFetch {
  enum class Kind {
    kAtEnd,  // the value after the step
    kFeed,   // what was fed
    kMean,   // tree mean over the shards
    kRows,   // rows of the shards, joined
  };
  int var = -1;
  Kind kind = Kind::kAtEnd;  // as it is when the step is cut into shards
};

// What identifies a plan.
struct PlanKey {
  const Program* program = nullptr;
  int32_t block = 0;
  std::vector<std::string> feeds;
  std::vector<std::string> fetches;
  Place place;
  // Replicas run it: cut into shards whatever it does, and losses are fetched of each.
  bool replicas = false;
  bool strict_place = false;  // ExecutorOptions::strict_place
  bool device_sums = false;   // CommRuntime::sums_on(place)
  bool tables_here = true;    // OpPlaces::Options::tables_here
};

// What a plan is made of. PlanCompiler and its passes fill it.
struct PlanData {
  PlanKey key;
  uint64_t program_id = 0;
  uint64_t seed = 0;
  const Block* block = nullptr;
  const KernelTable* kernels = nullptr;
  std::shared_ptr<const ProgramOps> op_library;  // the program's; may own kernels
  bool whole_step = true;
  bool inner = false;
  std::map<std::string, int, std::less<>> index;
  std::vector<uint64_t> compiled_ops;  // versions
  std::vector<PlanVar> vars;
  std::vector<PlanOp> ops;
  std::vector<std::shared_ptr<const Operator>> copies;  // ops that the program does not have
  // Persistable variables of the plan and of the blocks that its ops run, with their homes.
  std::map<std::string, Place> persistables;
  std::vector<PlanFetch> fetches;
  std::vector<int> per_shard;
  std::vector<int> statistics;
  int buffer_count = 0;
  int head = 0;
  int tail = 0;
  bool sharded = false;
  bool communicates = false;
  bool shards_are_apart = false;
  std::vector<int> joins;
};

// Immutable, shared by threads. Points into the program, which must outlive it and stay as it is;
// is_current() tells whether it did.
class Plan {
 public:
  // Throws ProgramError for unknown ops, feeds and fetches, and for variables that are read
  // before anything writes them. With `whole_step` unset, whatever is not made by the block is
  // taken from the scope: a server's optimize block.
  static std::shared_ptr<const Plan> compile(const PlanKey& key, const KernelTable& kernels,
                                             bool whole_step);

  const Program& program() const { return *data_.key.program; }
  const Block& block() const { return *data_.block; }
  const PlanKey& key() const { return data_.key; }
  const KernelTable& kernels() const { return *data_.kernels; }
  // False for a block that runs on a server's scope: values that the scope has are used whatever
  // they are, and no buffer is shared.
  bool whole_step() const { return data_.whole_step; }

  // True for the block of an op of another plan: it runs in a workspace inside that one's.
  bool inner() const { return data_.inner; }

  const std::vector<PlanVar>& vars() const { return data_.vars; }
  // Position of a variable; -1 when the plan does not touch it.
  int find_var(std::string_view name) const;
  const std::vector<PlanOp>& ops() const { return data_.ops; }
  const std::vector<PlanFetch>& fetches() const { return data_.fetches; }
  int buffer_count() const { return data_.buffer_count; }
  const std::map<std::string, Place>& persistables() const { return data_.persistables; }

  // Ops [0, head) run once first, [head, tail) once per shard, the others once at the end.
  int head() const { return data_.head; }
  int tail() const { return data_.tail; }
  // True when the step is cut into shards: it trains, or sends to servers.
  bool sharded() const { return data_.sharded; }
  // True also for one that leaves tables to the runtime (fake_init).
  bool communicates() const { return data_.communicates; }
  // Variables that each shard makes and the tail reads: gradients.
  const std::vector<int>& per_shard() const { return data_.per_shard; }
  // Persistable variables that the forward part writes: statistics. Every shard starts from their
  // value at the step's begin, and the step leaves the mean over the shards.
  const std::vector<int>& statistics() const { return data_.statistics; }

  // True when the shards of a step touch nothing of each other, and nothing but gradients,
  // statistics and fetches comes out of them: they may run at once, each in a workspace.
  bool shards_are_apart() const { return data_.shards_are_apart; }

  // Ops among those of shards that the executor runs for all shards at once (RunBy::kShards).
  const std::vector<int>& joins() const { return data_.joins; }

  // False once ops of the block were added, taken away, replaced or changed, or the seed or the
  // program's library changed.
  bool is_current() const;

 private:
  friend class PlanCompiler;
  explicit Plan(PlanData data) : data_(std::move(data)) {}

  PlanData data_;
};

// Whether a step of the program is one of a job: its plan communicates().
bool calls_runtime(const Program& program);

}  // namespace fleet::fluid
