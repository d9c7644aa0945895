#include "strategies/collective/socket_ranks.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/net/own_address.h"
#include "base/strings.h"
#include "transport/collective/communicator.h"

namespace fleet::strategies {
namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::vector<Endpoint> endpoints_of(const std::vector<std::string>& texts) {
  std::vector<Endpoint> endpoints;
  endpoints.reserve(texts.size());
  for (const std::string& text : texts) {
    endpoints.push_back(Endpoint::parse(text, "where a rank listens").value());
  }
  return endpoints;
}

// Its own entry; rank 0's has the coordinator, so that its peers find it at another port. Without
// endpoints the address by which this machine reaches rank 0, or rank 0's own.
Endpoint listening_endpoint(const role_maker::ClusterSpec& cluster) {
  const std::string own = cluster.current_endpoint();
  if (!own.empty()) {
    Endpoint endpoint = Endpoint::parse(own, "worker_endpoints").value();
    if (cluster.index == 0) endpoint.port = 0;
    return endpoint;
  }
  const Endpoint meeting = coordinator_endpoint(cluster);
  if (cluster.index == 0) return {meeting.host, 0};
  return {own_address_towards(meeting), 0};
}

}  // namespace

Endpoint coordinator_endpoint(const role_maker::ClusterSpec& cluster) {
  const std::string text =
      cluster.worker_endpoints.empty() ? cluster.rendezvous : cluster.worker_endpoints.front();
  if (!text.empty()) return Endpoint::parse(text, "where ranks meet").value();
  throw_error(ErrorCode::kEnvironment,
              {.what = "the ranks do not know where to meet",
               .where = cluster.process_name(),
               .expected = "an endpoint for each rank, or rank 0's address and port",
               .got = str_cat("neither, from ", role_maker::to_string(cluster.contract)),
               .fix = "set PADDLE_TRAINER_ENDPOINTS, start the ranks with launch or torchrun, or "
                      "use MPI (FLEET_COLLECTIVES=mpi)"});
}

bool on_one_machine(const role_maker::ClusterSpec& cluster) {
  if (cluster.local_worker_num > 0) return cluster.local_worker_num == cluster.worker_num;
  const auto& endpoints = cluster.worker_endpoints;
  return !endpoints.empty() &&
         std::all_of(endpoints.begin(), endpoints.end(), [](const std::string& text) {
           return is_loopback(Endpoint::parse(text, "worker_endpoints").value().host);
         });
}

SocketRanks::SocketRanks(const MembershipOptions& options, Duration silence, Logger logger)
    : patience_(options.heartbeat_timeout), network_(options.transport) {
  made_ = std::make_unique<transport::SocketPeers>(loop_, network_, peer_options(options, silence),
                                                   std::move(logger));
  peers_ = made_.get();
}

SocketRanks::~SocketRanks() = default;

transport::SocketPeersOptions SocketRanks::peer_options(const MembershipOptions& options,
                                                        Duration silence) {
  transport::SocketPeersOptions made;
  made.hello = hello_of(options);
  made.listen = listening_endpoint(options.cluster);
  if (made.listen.port == 0 && options.transport == transport::TransportChoice::kUnix) {
    port_ = PortReservation::any(made.listen.host, 1);
    made.listen = port_.endpoints().front();
  }
  made.secret = options.secret;
  made.rpc_deadline = silence;
  return made;
}

std::unique_ptr<transport::CollectiveCommunicator> SocketRanks::connect(
    CollectiveMembership& membership) {
  made_->listen().throw_if_error();
  made_->connect(endpoints_of(membership.gather("where ranks listen", made_->bound().to_string())));
  return transport::make_communicator(std::move(made_));
}

void SocketRanks::leave() {
  (void)peers_->leave(patience_);
}

}  // namespace fleet::strategies
