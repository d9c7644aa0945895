// Watches the ranks of a collective job. Neither MPI nor a connection tells when a peer hangs, so
// every rank sends heartbeats to a coordinator on rank 0; its verdict ends the job.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/net/endpoint.h"
#include "base/wait_list.h"
#include "role_maker/cluster_spec.h"
#include "transport/coordinator/membership.h"
#include "transport/link/link.h"
#include "transport/session/handshake.h"
#include "transport/session/secret.h"

namespace fleet::strategies {

struct MembershipOptions {
  role_maker::ClusterSpec cluster;
  transport::Secret secret;
  // What every rank must agree on, by name; compared with rank 0.
  std::map<std::string, std::string> facts;
  // Told what the coordinator waits for; may be null. Outlives the membership.
  WaitList* waits = nullptr;
  // Told by rank 0's control thread whom the job waits for; may be empty.
  transport::StallHandler on_stall = nullptr;
  // What the rank waits for together with others, for reports of stalls; asked by the control
  // thread. May be empty.
  std::function<std::string()> awaits = nullptr;
  bool require_same_bits = false;
  transport::TransportChoice transport = transport::TransportChoice::kAuto;
  // Where rank 0 listens when the cluster does not say: loopback reaches ranks of one machine.
  std::string host = "127.0.0.1";
  Duration rpc_deadline = std::chrono::seconds(180);
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration heartbeat_timeout = std::chrono::seconds(10);
  transport::ReconnectGrace reconnect_grace;
  Duration stall_report = std::chrono::seconds(8);
  Duration stall_deadline = std::chrono::minutes(30);
};

// As every connection of the rank says it.
transport::Hello hello_of(const MembershipOptions& options);

// Used by one thread; heartbeats run on a thread of its own.
class CollectiveMembership {
 public:
  // Gives every rank what rank 0 gave.
  using Broadcast = std::function<std::string(const std::string& from_rank_0)>;

  // `on_verdict` is called at most once, on the control thread. All ranks construct it together:
  // rank 0 opens the coordinator and `broadcast` tells where. Throws ResourceError or PeerError.
  CollectiveMembership(MembershipOptions options, const Broadcast& broadcast,
                       std::function<void(const Status&)> on_verdict, Logger logger = {});
  // The same where every rank knows beforehand where rank 0 opens it.
  CollectiveMembership(MembershipOptions options, const Endpoint& coordinator,
                       std::function<void(const Status&)> on_verdict, Logger logger = {});
  // Ends the job, with this rank to blame, unless it has left or the job has ended. So does the
  // exit of the process, which ends the control thread as well.
  ~CollectiveMembership();
  CollectiveMembership(const CollectiveMembership&) = delete;
  CollectiveMembership& operator=(const CollectiveMembership&) = delete;

  // What the training thread is doing. Never blocks.
  void set_phase(transport::Phase phase, uint64_t step);
  // Waits for all ranks. Throws PeerError that names who is missing or why the job ends.
  void meet(const std::string& name);
  // The same, with a text of each rank, by rank.
  std::vector<std::string> gather(const std::string& name, const std::string& mine);
  // The job must end, because of the culprit that is named.
  void abort(transport::Verdict verdict);
  // Leaves in good order: after it, losing a rank is no failure. Rank 0 waits until all have left,
  // at most rpc_deadline. Throws PeerError when the job ended before.
  void leave();

  // Why the job ended; ok while it has not.
  Status verdict() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fleet::strategies
