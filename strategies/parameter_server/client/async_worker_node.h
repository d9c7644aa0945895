// One asynchronous worker of a job as a node of the cluster: its client, and its place with
// the coordinator. The same class serves real processes, threads of a test, and nodes of a
// simulated world.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "strategies/parameter_server/client/async_client.h"
#include "strategies/parameter_server/client/worker_member.h"

namespace fleet::strategies {

// Lives on the data loop: made, called and destroyed on the thread that drives it, or while nobody
// does; but for what is said to be for any thread.
class AsyncWorkerNode {
 public:
  AsyncWorkerNode(NodeEnvironment environment, ParameterServerConfig config, Logger logger = {});
  // Ends the job, with this worker to blame, unless it has completed.
  ~AsyncWorkerNode() = default;
  AsyncWorkerNode(const AsyncWorkerNode&) = delete;
  AsyncWorkerNode& operator=(const AsyncWorkerNode&) = delete;

  // Begins to connect; servers may come later.
  void start();
  AsyncClient& client() { return *client_; }
  const AsyncClient& client() const { return *client_; }
  // Why the job failed, as the coordinator or the own requests tell it; ok while it has not.
  Status status() const;
  // Every catalogue is here, and the coordinator knows this worker.
  bool ready() const { return client_->ready() && member_->joined(); }
  // Called once, when the coordinator knows it.
  void set_on_joined(std::function<void()> on_joined) { on_joined_ = std::move(on_joined); }
  // Called once, when the job has failed.
  void set_on_failure(std::function<void(const Status&)> on_failure);
  // The failure of a request is the job's.
  void check();

  // The worker contributes no more: `done` runs when the servers and the coordinator know. Nothing
  // may be under way, or be begun later.
  void stop(std::function<void(const Status&)> done);

  // Any thread.
  void set_phase(transport::Phase phase, uint64_t step) { member_->set_phase(phase, step); }
  // Any thread but the control loop's; blocks. Tells the others that this worker ends the job.
  void abort(const Status& why, transport::Phase phase, uint64_t step);
  transport::CoordinatorClient& member() { return member_->client(); }

 private:
  void tell_failure();

  NodeEnvironment environment_;
  ParameterServerConfig config_;
  Logger logger_;
  std::unique_ptr<AsyncClient> client_;
  std::optional<WorkerMember> member_;
  std::function<void(const Status&)> on_failure_;
  std::function<void()> on_joined_;
};

}  // namespace fleet::strategies
