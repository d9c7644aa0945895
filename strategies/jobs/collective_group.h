// The ranks of a collective job as a group: how they meet, over MPI or over sockets, and how they
// end together. Heartbeats go to a coordinator on rank 0, whose verdict breaks the communicator.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "fluid/core/place.h"
#include "role_maker/cluster_spec.h"
#include "strategies/collective/device_ranks.h"
#include "strategies/config/runtime_config.h"
#include "strategies/parameter_server/observer.h"
#include "transport/collective/collective.h"
#include "transport/coordinator/membership.h"

namespace fleet::strategies {

// How long a rank waits for others without a verdict. The coordinator's comes first, and names the
// culprit.
Duration longest_wait(const RuntimeConfig& config);

struct GroupOptions {
  role_maker::ClusterSpec cluster;
  RuntimeConfig config;
  std::map<std::string, std::string> facts;  // what all ranks must agree on, by name
  // Told of stalls and of what the group waits for; may be null.
  std::shared_ptr<JobObserver> observer;
  Logger logger;
};

// Used by one thread.
class CollectiveGroup {
 public:
  explicit CollectiveGroup(GroupOptions options);
  // Ends the job with this rank to blame, unless it has left. The communicator must be gone, or
  // end() have been called.
  ~CollectiveGroup();
  CollectiveGroup(const CollectiveGroup&) = delete;
  CollectiveGroup& operator=(const CollectiveGroup&) = delete;

  // Once; all ranks call it. The communicator must not outlive the group. Throws PeerError,
  // UsageError or ResourceError.
  std::unique_ptr<transport::CollectiveCommunicator> connect();
  // The communicator of tensors on a device (strategies/collective/device_ranks.h), as connect();
  // `host` is what that made. How long it may take is the group's. Null where sums go over host
  // memory.
  std::unique_ptr<transport::CollectiveCommunicator> connect_devices(
      transport::CollectiveCommunicator& host, const fluid::Place& place,
      DeviceRanksOptions options);
  // What this rank does now, for heartbeats. Never blocks.
  void enter(transport::Phase phase, uint64_t step);
  // Ends the job, because of this rank.
  void abort(const Status& why, uint64_t step);
  // In good order, when this rank has no operation under way: afterwards losing it is no failure.
  // The communicator may go then. Throws PeerError when the job has ended before.
  void leave();
  // No heartbeat and no verdict from here on.
  void end();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fleet::strategies
