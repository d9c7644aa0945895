// Runs whole steps of a plan: what comes first, the shards, what comes last, the fetches.
#pragma once

#include <memory>
#include <vector>

#include "fluid/executor/shards/shard_results_impl.h"
#include "fluid/executor/shards/shard_threads_impl.h"
#include "fluid/executor/step_graph_impl.h"
#include "fluid/executor/workspace_impl.h"

namespace fleet::fluid {

class UnseenSteps;

// Used by one thread at a time. The scope and the steps unseen must outlive it.
class StepRunner {
 public:
  StepRunner(std::shared_ptr<const Plan> plan, Scope& scope, UnseenSteps& unseen);
  ~StepRunner();
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  const Plan& plan() const { return home_.plan(); }
  Scope& scope() const { return home_.scope(); }
  bool is_current() const { return plan().is_current() && home_.is_current(); }

  // One step; returns the fetched tensors, which share no memory with the workspace. `later`:
  // those of a device may stay there, and may not be made yet. The device may still work on the
  // step when it returns, unless something was fetched now or is to be looked at. The step's watch
  // is told of what the device found in it then, else at the end of the executor's next step, or
  // when somebody looks at the steps unseen.
  std::vector<Tensor> run(Workspace::Step step, bool later = false);

 private:
  bool is_waited_for(const Workspace::Step& step, bool later) const;
  uint32_t* words_for(const Workspace::Step& step);
  // The whole of a step on a device, by what it recorded of one; false: it is to be run op by op.
  bool run_graph(const Workspace::Step& step, int parts);
  void run_op_by_op(const Workspace::Step& step, int parts);
  void run_shards(Workspace::Step step, int parts);
  void run_shard(Workspace& lane, const Workspace::Step& step, int part, int parts);
  void run_on_threads(const Workspace::Step& step, int parts, int threads);
  void run_joined(const Workspace::Step& step, int parts, int threads);
  void join(const Workspace::Step& step, int op, int parts);
  // Where a shard of a step whose shards meet has its values: the last one in the step's own.
  Workspace& lane_of(int part, int parts) {
    return part + 1 == parts ? home_ : *lanes_[static_cast<size_t>(part)];
  }
  void keep_results(Workspace& lane, const Workspace::Step& step, int part, bool copies);
  void make_lanes(int lanes, int threads);

  std::shared_ptr<const Plan> plan_;
  Workspace home_;
  ShardResults results_;
  bool head_is_fed_;                  // an op before the shards touches what is fed
  std::unique_ptr<StepGraph> graph_;  // made when first needed
  UnseenSteps& unseen_;
  // What the device says of two steps in turn.
  std::shared_ptr<uint32_t> words_;
  bool second_words_ = false;
  // Where other threads run shards, and those threads; made when first needed.
  std::vector<std::unique_ptr<Workspace>> lanes_;
  std::unique_ptr<ShardThreads> threads_;
};

}  // namespace fleet::fluid
