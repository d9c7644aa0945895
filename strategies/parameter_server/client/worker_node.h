// One worker of a job as a node of the cluster: its client, and its place with the coordinator. The
// same class serves real processes, threads of a test, and nodes of a simulated world.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strategies/parameter_server/client/worker_member.h"

namespace fleet::strategies {

class AsyncClient;
class SyncClient;

// Of a synchronous or an asynchronous client. Lives on the data loop: made, called and destroyed on
// the thread that drives it, or while nobody does; but for what is said to be for any thread.
// Nothing here blocks, but abort().
template <class Client>
class WorkerNode {
 public:
  WorkerNode(NodeEnvironment environment, ParameterServerConfig config, const Logger& logger = {});
  // Ends the job, with this worker to blame, unless it has completed.
  ~WorkerNode() = default;
  WorkerNode(const WorkerNode&) = delete;
  WorkerNode& operator=(const WorkerNode&) = delete;

  // Begins to connect; servers may come later. Later calls do nothing.
  void start();
  // Every parameter index is here, and the coordinator knows this worker.
  bool ready() const { return client_->ready() && member_->joined(); }
  Client& client() { return *client_; }
  const Client& client() const { return *client_; }
  transport::CoordinatorClient& member() { return member_->client(); }
  // Why the job failed, as the coordinator or the own requests tell it; ok while it has not.
  Status status() const { return member_->status().ok() ? client_->status() : member_->status(); }
  // Called once, when the coordinator knows it.
  void set_on_joined(std::function<void()> on_joined) { on_joined_ = std::move(on_joined); }
  // Called once, when the job has failed.
  void set_on_failure(std::function<void(const Status&)> on_failure) {
    on_failure_ = std::move(on_failure);
  }
  // The failure of a request is the job's.
  void check() {
    if (!status().ok()) tell_failure();
  }

  // The worker contributes no more: `done` runs when the servers and the coordinator know. Nothing
  // may be under way, or be begun later.
  void stop_async(std::function<void(const Status&)> done);
  bool stopped() const { return member_->stopped(); }

  // Any thread: what the worker does, for heartbeats and messages.
  void set_phase(transport::Phase phase, uint64_t step) { member_->set_phase(phase, step); }
  // Any thread but the control loop's; block.
  // Tells the others that this worker ends the job, in that step of its own.
  void abort(const Status& why, transport::Phase phase, uint64_t step) {
    member_->abort(why, phase, step);
  }
  // The workers of the group meet; `saves` as in transport::ReduceCall.
  Status barrier(transport::Group group, const std::string& name,
                 std::optional<uint64_t> saves = {}) {
    return member().barrier(group, name, Duration(0), saves);
  }
  // The values become their sums over them.
  Status all_reduce(transport::Group group, const std::string& name, std::vector<double>& values,
                    std::optional<uint64_t> saves = {});

  // Every request ends with this status. Returns the servers that were waited for, for messages.
  std::vector<std::string> give_up(const Status& why);
  // Any thread: throws `why`, with what this worker did, in which step, and for how long.
  [[noreturn]] void throw_failure(const Status& why, transport::Phase phase, std::string_view what,
                                  uint64_t step, Duration elapsed,
                                  const std::vector<std::string>& peers) const;

 protected:
  NodeEnvironment environment_;
  ParameterServerConfig config_;
  std::unique_ptr<Client> client_;
  std::optional<WorkerMember> member_;

 private:
  void tell_failure() {
    if (const auto tell = std::exchange(on_failure_, nullptr)) tell(status());
  }

  std::function<void(const Status&)> on_failure_;
  std::function<void()> on_joined_;
};

extern template class WorkerNode<SyncClient>;
extern template class WorkerNode<AsyncClient>;

}  // namespace fleet::strategies
