// What one thread needs to run the ops of one plan: values, buffers, prepared kernels.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fluid/core/device_memory.h"
#include "fluid/core/scope.h"
#include "fluid/executor/comm_ops_impl.h"
#include "fluid/executor/op_runner_impl.h"
#include "fluid/executor/plan/plan_impl.h"

namespace fleet::fluid {

class BlockRunner;
class FiniteChecks;
class Profile;

// Used by one thread at a time. The scope and the enclosing workspace must outlive it.
class Workspace {
 public:
  enum class Statistics { kOfScope, kOwn };
  Workspace(std::shared_ptr<const Plan> plan, Scope& scope, Workspace* outer = nullptr,
            Statistics statistics = Statistics::kOfScope);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  const Plan& plan() const { return *plan_; }
  Scope& scope() const { return scope_; }
  // True while the scope's values are where they were when the workspace was made.
  bool is_current() const { return scope_.revision() == scope_revision_; }

  // What ops of a step are run with.
  struct Step {
    std::span<const Tensor> feeds;  // in the plan's order
    StepShards shards;              // run by this process
    CommRuntime* runtime = nullptr;
    uint64_t number = 0;
    bool check_nan_inf = false;
    Profile* profile = nullptr;  // who measures
    FiniteWatch* watch = nullptr;
    CommRuntime* watched_by = nullptr;  // whose the watch is; null: of whoever has the executor
    int threads = 1;                    // that may run shards at once
    Tiles tiles = {};                   // of an op, where shards do not run at once
    int tile_threads = 1;
    // Where the device's updates say that something is not finite, and behind it a word for each
    // loss (FiniteChecks).
    uint32_t* nonfinite_words = nullptr;
    bool sums = false;   // what shards make is added up and not divided
    bool graph = false;  // ExecutorOptions::cuda_graph
  };

  // Ops [begin, end) of the plan; `shard` is -1 for those that run once a step.
  void run_ops(const Step& step, int begin, int end, int shard);
  // The ops of an inner block, once.
  void run_inner(const Step& step, int shard);

  // The value of a variable here or in an enclosing workspace; null when none touches it.
  Value* find(std::string_view name) const;
  // The value behind position i of the plan's variables.
  Value& value(int var) { return *values_[static_cast<size_t>(var)]; }
  const Value& value(int var) const { return *values_[static_cast<size_t>(var)]; }

  // Before a step: what was loaded from files, or computed elsewhere, comes to where the plan has
  // it.
  void fetch_persistables_in();
  // Part `part` of `parts` of what is fed; release_feeds lets go of it.
  void bind_feeds(const Step& step, int part, int parts);
  void release_feeds();
  // Arrays that the run fills begin without elements; others were given.
  void clear_arrays();

  CommOps& communication() { return communication_; }
  const FiniteChecks& finite_checks() const { return *finite_checks_; }
  // The stream of the plan's place; null on CPU.
  void* stream() const { return stream_.get(); }

 private:
  void bind_values(Statistics statistics);
  // Where a device finds what is fed to a variable.
  struct Fed {
    Tensor memory;  // in every step the same
    std::unique_ptr<FeedCopier> copier;
    const void* direct = nullptr;  // what was fed was there, and was read there
    bool moves = false;            // other memory was fed later
  };
  Tensor fed_to_device(size_t var, const Tensor& fed, bool stays);
  void bring_home();
  void copy(const Step& step, int k);
  void before_host_waits(const Step& step) const;
  bool copy_later(int k);
  bool copy_to_device(int k);
  [[noreturn]] void throw_no_memory(int k) const;
  void add_runner(size_t k);
  Scratch& scratch_of(const PlanOp& op);
  void run_op(const Step& step, int k, int shard, bool together);
  int beside(const Step& step, int k, int end) const;
  void run_beside(const Step& step, int k, int count, int shard);
  void measure_op(const Step& step, int k, int shard);

  std::shared_ptr<const Plan> plan_;
  Scope& scope_;
  uint64_t scope_revision_ = 0;
  Workspace* outer_ = nullptr;
  std::vector<Value> own_;
  std::vector<Value*> values_;
  std::vector<std::pair<Value*, Place>> persistables_;  // with their homes
  std::vector<Fed> fed_;                                // by variable; only for a device
  std::vector<Buffer> buffers_;
  Scratch scratch_;
  // Of ops that run beside another one, by how many are before them in their row.
  std::vector<std::unique_ptr<Scratch>> beside_scratch_;
  // Of the plan's place, and of the enclosing workspace, where there is one; null on CPU.
  std::shared_ptr<void> stream_;
  // By op, of staged copies; made when first needed.
  std::map<int, std::unique_ptr<HostCopier>> to_host_;
  std::map<int, std::unique_ptr<FeedCopier>> to_device_;
  CommOps communication_;
  std::vector<std::unique_ptr<OpRunner>> runners_;  // null for communication and block ops
  std::vector<std::unique_ptr<BlockRunner>> block_runners_;
  std::unique_ptr<const FiniteChecks> finite_checks_;
};

}  // namespace fleet::fluid
