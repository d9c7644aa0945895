// One server of a job as a node of the cluster: it listens, trains with the workers, and on
// server 0 keeps the coordinator. The same class serves real processes, threads of a test, and
// nodes of a simulated world.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "base/post_queue.h"
#include "strategies/parameter_server/server/server_lanes.h"
#include "strategies/parameter_server/server/server_links.h"
#include "strategies/parameter_server/server/update_pool.h"
#include "transport/coordinator/coordinator.h"
#include "transport/coordinator/coordinator_client.h"

namespace fleet::strategies {

// Made, used and destroyed by the thread that drives the data loop, outside of its handlers.
class ServerNode {
 public:
  // Makes what serves the data lanes.
  using MakeLanes = std::function<std::unique_ptr<ServerLanes>(ServingEvents events)>;

  ServerNode(NodeEnvironment environment, ParameterServerConfig config, const MakeLanes& make_lanes,
             Logger logger = {});
  ~ServerNode();
  ServerNode(const ServerNode&) = delete;
  ServerNode& operator=(const ServerNode&) = delete;

  // Takes the port and begins to serve. kAddressInUse when somebody has it.
  Status start();
  // The address with its real port.
  Endpoint bound() const;

  // All workers and servers have completed.
  bool finished() const { return completed_ && all_complete_; }
  // Why the job failed; ok while it has not.
  const Status& status() const { return status_; }
  // Drives the data loop until finished; throws PeerError naming the culprit when the job failed.
  void serve();

  const ServerLanes& server() const { return *server_; }

 private:
  void start_control();
  void start_links();
  // Events of lanes with threads of their own come from those.
  void on_data_loop(std::function<void()> work);
  void offload(std::function<void()> work, std::function<void()> done);
  void on_verdict(const transport::Verdict& verdict);
  // Ends the job.
  void fail(transport::MemberId culprit, const Status& why, uint64_t step);
  void complete();
  void tell_complete();  // on the control loop
  bool coordinates() const { return config_.index == 0; }
  unsigned update_threads() const {
    return config_.update_threads.value_or(environment_.update_threads);
  }

  NodeEnvironment environment_;
  ParameterServerConfig config_;
  Logger logger_;
  std::unique_ptr<ServerLanes> server_;
  PostQueue data_posts_;
  std::unique_ptr<ServerLinks> links_;  // when the model has exchanges
  std::unique_ptr<UpdatePool> pool_;    // from the first large update on
  std::unique_ptr<transport::Coordinator> coordinator_;
  WaitList::Watch server_watch_;
  WaitList::Watch coordinator_watch_;
  std::unique_ptr<transport::Server> listener_;
  std::unique_ptr<transport::CoordinatorClient> member_;
  // Read on both loops.
  std::shared_ptr<std::atomic<bool>> alive_ = std::make_shared<std::atomic<bool>>(true);
  Status status_;
  bool completed_ = false;
  bool all_complete_ = false;
  // Of the control loop:
  bool served_ = false;
  bool workers_complete_ = false;
};

}  // namespace fleet::strategies
