// A synchronous worker whose training thread waits for its exchanges.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/parameter_server/client/sync_client.h"
#include "strategies/parameter_server/client/worker_node.h"

namespace fleet::strategies {

// Belongs to the thread that trains and drives the data loop. What blocks throws PeerError with
// peer, rank, phase, step and elapsed time when the job failed; the others are told then.
class BlockingWorkerNode : public WorkerNode<SyncClient> {
 public:
  using WorkerNode::WorkerNode;

  // Says what the training thread does, in the step under way.
  void set_phase(transport::Phase phase) { WorkerNode::set_phase(phase, client_->step() + 1); }

  // Drives the data loop until the client is idle and the coordinator knows this worker.
  void wait(transport::Phase phase, std::string_view what);
  // The same until `reached`, or throws what failed meanwhile.
  void wait_until(const std::function<bool()>& reached, transport::Phase phase,
                  std::string_view what);
  // The same until no memory of gradients is needed any more.
  void wait_drained();
  // Runs what is ready on the data loop, and does not wait.
  void poll();

  void barrier(transport::Group group, const std::string& name);
  std::vector<double> all_reduce(transport::Group group, const std::string& name,
                                 std::vector<double> values);
  // The worker contributes no more and leaves. Once; later calls do nothing.
  void stop();

 private:
  // Runs a call to the coordinator that blocks.
  void ask_coordinator(transport::Phase phase, std::string_view what,
                       const std::function<Status()>& call);
  [[noreturn]] void fail(const Status& why, transport::Phase phase, std::string_view what,
                         Duration elapsed);
};

}  // namespace fleet::strategies
