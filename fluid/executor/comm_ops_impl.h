// The communication of one workspace: ops that the job's runtime runs, lookups of tables whose rows
// are with a keeper, and the operations under way.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "fluid/core/scope.h"
#include "fluid/executor/plan/plan_impl.h"
#include "fluid/kernels/comm_runtime.h"

namespace fleet::fluid {

// Used by the thread of its workspace. The plan and the scope must outlive it.
class CommOps {
 public:
  // Throws UsageError when the plan fetches a table that is with a keeper.
  CommOps(const Plan& plan, Scope& scope);

  // Takes op k in, in the order of the plan; true when the runtime computes it, false when a kernel
  // or the executor does. Throws UsageError when it reads all of a table that is with a keeper.
  bool add(size_t k, const std::vector<Value*>& inputs, const std::vector<Value*>& outputs);
  // True when the runtime has a part in op k: it computes the op, or fetches what its kernel reads.
  bool calls(int k) const { return calls_[static_cast<size_t>(k)]; }

  // Starts op k, once its last run is done. `runtime` may be null for an op whose table has a
  // keeper.
  void run(CommRuntime* runtime, int k, uint64_t step, int shard);
  // Waits until op k is done; does nothing when it is.
  void wait_for(int k);
  // What op k must not overtake (PlanOp::waits).
  void wait_before(int k) {
    for (const int other : plan_.ops()[static_cast<size_t>(k)].waits) wait_for(other);
  }
  void wait_for_all();

  // Makes the runtime the keeper of the tables that the program leaves to the job's servers.
  void leave_tables_to(CommRuntime& runtime);

 private:
  bool looks_up_kept_table(size_t k);
  void refuse_kept_fetches() const;

  const Plan& plan_;
  Scope& scope_;
  std::vector<bool> calls_;  // by op
  std::vector<std::vector<Value*>> inputs_;
  std::vector<std::vector<Value*>> outputs_;
  std::map<int, std::weak_ptr<Keeper>> kept_tables_;  // by op: who has the table that it looks up
  std::vector<std::unique_ptr<CommToken>> tokens_;
};

}  // namespace fleet::fluid
