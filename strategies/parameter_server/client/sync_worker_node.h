// One worker of a job as a node of the cluster: its client, and its place with the
// coordinator. The same class serves real processes, threads of a test, and nodes of a simulated
// world.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strategies/parameter_server/client/sync_client.h"
#include "strategies/parameter_server/client/worker_member.h"

namespace fleet::strategies {

// Made, used and destroyed by the thread that drives the data loop, outside of its handlers
// (under simulation: by the world's driver).
class SyncWorkerNode {
 public:
  SyncWorkerNode(NodeEnvironment environment, ParameterServerConfig config, Logger logger = {});
  // Ends the job, with this worker to blame, unless it has completed.
  ~SyncWorkerNode() = default;
  SyncWorkerNode(const SyncWorkerNode&) = delete;
  SyncWorkerNode& operator=(const SyncWorkerNode&) = delete;

  // Begins to connect; servers may come later.
  void start();
  // Every catalogue is here, and the coordinator knows this worker.
  bool ready() const { return client_->ready() && member_->joined(); }

  SyncClient& client() { return *client_; }
  const SyncClient& client() const { return *client_; }
  transport::CoordinatorClient& member() { return member_->client(); }
  // Why the job failed, as the coordinator or the own requests tell it; ok while it has not.
  Status status() const;

  // Says what the training thread does, for heartbeats and messages.
  void set_phase(transport::Phase phase);

  // Drives the data loop until the client is idle and the coordinator knows this worker.
  // Throws PeerError with peer, rank, phase, step and elapsed time when the job failed; the others
  // are told then.
  void wait(transport::Phase phase, std::string_view what);
  // The same until no memory of gradients is needed any more.
  void wait_settled();
  // Runs what is ready on the data loop, and does not wait.
  void poll();

  // Blocking, on the thread that trains, not on the control loop's.
  void barrier(const std::string& name);
  std::vector<double> all_reduce(const std::vector<double>& values);
  // The worker contributes no more and leaves. Once; later calls do nothing.
  void stop();
  bool stopped() const { return member_->stopped(); }

  // Without blocking, for a simulated world: `done` runs when the servers and the coordinator
  // know that this worker has completed.
  void stop_async(std::function<void(const Status&)> done);

  // Tells the others that this worker ends the job, in that step of its own.
  void abort(const Status& why, uint64_t step) {
    member_->abort(why, transport::Phase::kComputing, step);
  }

 private:
  void wait_until(const std::function<bool()>& reached, transport::Phase phase,
                  std::string_view what);
  [[noreturn]] void fail(const Status& why, transport::Phase phase, std::string_view what,
                         Duration elapsed);

  NodeEnvironment environment_;
  ParameterServerConfig config_;
  Logger logger_;
  std::unique_ptr<SyncClient> client_;
  std::optional<WorkerMember> member_;
};

}  // namespace fleet::strategies
