// The communication of one workspace: ops that the job's runtime runs, lookups of tables whose rows
// are with a keeper, and the operations under way.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "fluid/core/device_memory.h"
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

  // Starts op k, once its last run is done, what it reads has come from the device, and the ops
  // before it have begun: later, then. `runtime` may be null for an op whose table has a keeper.
  void run(CommRuntime* runtime, int k, uint64_t step, int shard);
  // A variable is on its way from the device; the copier stays.
  void expect(int var, HostCopier& copier) { arriving_[var] = &copier; }
  // Starts the ops whose variables have come meanwhile.
  void go_on();
  // Waits for the variables of all ops that are to be started, and starts them.
  void start_all();
  // Of a step that ended early, none is started.
  void forget_unstarted() { unstarted_.clear(); }
  // Waits until op k is done; does nothing when it is.
  void wait_for(int k);
  // What op k must not overtake (PlanOp::waits): the host waits, or the device where that computes
  // the op and can.
  void wait_before(int k);
  void wait_for_all();

  // Makes the runtime the keeper of the tables that the program leaves to the job's servers.
  void leave_tables_to(CommRuntime& runtime);

 private:
  struct Call {
    CommRuntime* runtime = nullptr;
    int op = -1;
    uint64_t step = 0;
    int shard = 0;
  };

  bool looks_up_kept_table(size_t k);
  bool has_come(int k) const;
  bool is_under_way(int k) const;
  void wait_for_inputs(const Call& call);
  void start(const Call& call);
  void refuse_kept_fetches() const;

  const Plan& plan_;
  Scope& scope_;
  std::vector<bool> calls_;  // by op
  std::vector<std::vector<Value*>> inputs_;
  std::vector<std::vector<Value*>> outputs_;
  std::map<int, std::weak_ptr<Keeper>> kept_tables_;  // by op: who has the table that it looks up
  std::vector<std::unique_ptr<CommToken>> tokens_;
  std::map<int, HostCopier*> arriving_;  // by variable
  std::deque<Call> unstarted_;           // in order
};

}  // namespace fleet::fluid
