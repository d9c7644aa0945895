// What one thread needs to run one plan: values, buffers, prepared kernels.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/shard_tree.h"
#include "fluid/core/scope.h"
#include "fluid/executor/plan.h"
#include "fluid/kernels/comm_runtime.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// One op of one workspace: its values, and its kernels prepared for the input shapes seen lately.
class OpRunner {
 public:
  OpRunner(const Plan& plan, const PlanOp& op, std::vector<Value*> inputs,
           std::vector<Value*> outputs, std::span<Buffer> buffers, Scratch& scratch, void* stream,
           uint32_t* nonfinite_word);
  OpRunner(const OpRunner&) = delete;
  OpRunner& operator=(const OpRunner&) = delete;

  void run(uint64_t step, int shard) {
    if (current_ == nullptr || !fits(*current_)) bind();
    for (Reordered& image : current_->reordered) reorder(image);
    context_.set_step(step, shard);
    current_->prepared->run(context_);
    if (op_.lod_from >= 0 && !current_->sets_lod) pass_on_lod();
  }

  std::span<Value* const> inputs() const { return inputs_; }
  std::span<Value* const> outputs() const { return outputs_; }
  // Of the last run: finite, unless an update wrote something that is not.
  double written() const { return context_.written(); }

 private:
  static constexpr size_t kMaxEntries = 8;

  // An input that the kernel wants in the other order of images.
  struct Reordered {
    size_t input = 0;
    Value value;
  };
  struct Entry {
    std::vector<ValueSpec> inputs;
    std::vector<PrepareContext::OutputSpec> outputs;
    std::vector<Reordered> reordered;
    std::unique_ptr<Prepared> prepared;
    bool sets_lod = false;
  };

  bool inputs_fit(const Entry& entry) const;
  bool fits(const Entry& entry) const;
  void bind();
  std::unique_ptr<Entry> prepare() const;
  bool prepare_with(const Kernel& kernel, Entry& entry) const;
  std::vector<ValueSpec> wanted_by(const Kernel& kernel, const Entry& entry) const;
  bool takes_blocks(const Kernel& kernel, const Entry& entry, const Shape& image) const;
  void reorder(Reordered& image);
  void give_memory(const PrepareContext::OutputSpec& spec, size_t i);
  void pass_on_lod();

  const Plan& plan_;
  const PlanOp& op_;
  std::vector<Value*> inputs_;
  std::vector<Value*> seen_;  // inputs as the kernel takes them
  std::vector<Value*> outputs_;
  std::vector<Value> unwanted_;  // stand in for outputs that nobody wants
  std::span<Buffer> buffers_;
  KernelContext context_;
  Entry* current_ = nullptr;
  std::vector<std::unique_ptr<Entry>> entries_;  // most recent first
};

class BlockRunner;
class Profile;
class ShardThreads;

// Used by one thread at a time. The plan, the scope and the enclosing workspace must outlive it.
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

  struct Step {
    std::span<const Tensor> feeds;  // in the plan's order
    ShardRange shards;              // run by this process
    CommRuntime* runtime = nullptr;
    uint64_t number = 0;
    bool check_nan_inf = false;
    Profile* profile = nullptr;  // who measures
    FiniteWatch* watch = nullptr;
    int threads = 1;  // that may run shards at once
  };
  // The ops of an inner block, once.
  void run_inner(const Step& step, int shard);
  // The value of a variable here or in an enclosing workspace; null when none touches it.
  Value* find(std::string_view name);
  // The value behind position i of the plan's variables.
  Value& value(int var) { return *values_[static_cast<size_t>(var)]; }
  const Value& value(int var) const { return *values_[static_cast<size_t>(var)]; }

  // One whole step; returns the fetched tensors, which share no memory with the workspace.
  std::vector<Tensor> run(const Step& step);

 private:
  void fetch_persistables_in();
  void add_runner(size_t k);
  bool takes_kept_table(size_t k);
  void refuse_kept_fetches() const;
  void leave_to(CommRuntime& runtime);
  void clear_arrays();
  void bind_feeds(const Step& step, int part, int parts);
  void release_feeds();
  void run_ops(const Step& step, int begin, int end, int shard);
  void run_op(const Step& step, int k, int shard);
  void measure_op(const Step& step, int k, int shard);
  void run_communication(const Step& step, int k, int shard);
  void wait_for(int k);
  void check_finite(const Step& step, int k);
  void watch_finite(const Step& step, int k);
  void watch_updates(const Step& step, const Plan& plan);
  void run_shards(const Step& step, int parts);
  void run_shard(Workspace& home, const Step& step, int part, int parts);
  void keep_shard(const Workspace& lane, int part, bool copies);
  void join_shards(int lanes);
  void join_on_host();
  void save_statistics(int parts);
  void begin_statistics(Workspace& lane);
  void keep_statistics(const Workspace& lane, int part);
  void join_statistics();
  std::vector<Tensor> take_fetches(const Step& step);

  std::shared_ptr<const Plan> plan_;
  Scope& scope_;
  uint64_t scope_revision_ = 0;
  std::vector<Value> own_;
  std::vector<Value*> values_;
  std::vector<Buffer> buffers_;
  Scratch scratch_;
  // What updates say when their work is done, and the stream of the plan's place (null on CPU):
  // those of the enclosing workspace, where there is one.
  std::shared_ptr<uint32_t> nonfinite_word_;
  std::shared_ptr<void> stream_;
  Workspace* outer_ = nullptr;
  std::vector<std::unique_ptr<OpRunner>> runners_;  // null for communication and block ops
  std::vector<std::unique_ptr<BlockRunner>> block_runners_;
  std::vector<int> losses_;  // by op: the loss of the program, when the op makes it; else -1
  std::vector<std::vector<Value*>> comm_inputs_;
  std::vector<std::vector<Value*>> comm_outputs_;
  std::map<int, std::weak_ptr<Keeper>> kept_tables_;  // by op: who has the table that it looks up
  std::vector<std::unique_ptr<CommToken>> tokens_;
  // Per variable that shards contribute to, and per fetch: the tensors of the shards.
  std::vector<std::vector<Tensor>> contributions_;
  std::vector<std::vector<SelectedRows>> row_contributions_;
  std::vector<std::vector<Tensor>> fetched_;
  // Per statistic: its value at the step's begin, and those of the shards.
  std::vector<Tensor> statistics_begin_;
  std::vector<std::vector<Tensor>> statistics_;
  // Where other threads run shards, and those threads; made when first needed.
  std::vector<std::unique_ptr<Workspace>> lanes_;
  std::unique_ptr<ShardThreads> threads_;
};

}  // namespace fleet::fluid
