// The ranks of a collective job that meet without MPI: rank 0 has the coordinator at a place that
// all of them know, there they tell where each listens, and then exchange tensors over sockets.
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "base/net/port_reservation.h"
#include "strategies/collective/collective_membership.h"
#include "transport/collective/collective.h"
#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"
#include "transport/socket_collective/socket_peers.h"

namespace fleet::strategies {

// Where rank 0 has its coordinator: its entry of worker_endpoints, else the rendezvous. Throws
// UsageError where the job says neither.
Endpoint coordinator_endpoint(const role_maker::ClusterSpec& cluster);

// Whether all ranks are on this machine, as far as their addresses and launcher say.
bool on_one_machine(const role_maker::ClusterSpec& cluster);

// Used by one thread. The communicator that it makes must be destroyed before it.
class SocketRanks {
 public:
  // As for the membership. `interfaces`: as base/net/own_address.h has it; `silence` bounds how
  // long a rank may compute without a call.
  SocketRanks(const MembershipOptions& options, const std::string& interfaces, Duration silence,
              Logger logger);
  ~SocketRanks();

  // All ranks call it, when they have joined. Throws PeerError or ResourceError; UsageError when
  // some ranks can be reached by others and some only on their own machine.
  std::unique_ptr<transport::CollectiveCommunicator> connect(CollectiveMembership& membership);
  // Where this rank listens, from connect() on.
  const Endpoint& endpoint() const { return endpoint_; }
  // Before the communicator goes, when all ranks have left the job in good order: answers that
  // others may still ask for.
  void leave();

 private:
  transport::SocketPeersOptions peer_options(const MembershipOptions& options,
                                             const std::string& interfaces, Duration silence);

  Duration patience_;
  transport::AsioLoop loop_;
  transport::AsioNetwork network_;
  PortReservation port_;  // where the kernel does not choose one
  std::unique_ptr<transport::SocketPeers> made_;
  transport::SocketPeers* peers_ = nullptr;  // the communicator's
  Endpoint endpoint_;
};

}  // namespace fleet::strategies
