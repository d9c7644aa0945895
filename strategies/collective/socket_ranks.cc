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

bool is_numeric(const std::string& host) {
  return host == "localhost" || host.find(':') != std::string::npos ||
         std::all_of(host.begin(), host.end(),
                     [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
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
// endpoints the chosen interface's address, or the one by which this machine reaches rank 0, or
// rank 0's own.
Endpoint listening_endpoint(const role_maker::ClusterSpec& cluster, const std::string& interfaces) {
  const std::string own = cluster.current_endpoint();
  if (!own.empty()) {
    Endpoint endpoint = Endpoint::parse(own, "worker_endpoints").value();
    if (cluster.index == 0) endpoint.port = 0;
    return endpoint;
  }
  const Endpoint meeting = coordinator_endpoint(cluster);
  if (cluster.index == 0 && interfaces.empty()) return {meeting.host, 0};
  return {own_address_towards(meeting, interfaces), 0};
}

// A rank that names loopback is out of reach for those on other machines.
void check_reach(const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> near;
  std::vector<std::string> far;
  for (size_t rank = 0; rank < endpoints.size(); ++rank) {
    if (!is_numeric(endpoints[rank].host)) continue;  // a name may be either
    auto& ranks = is_loopback(endpoints[rank].host) ? near : far;
    ranks.push_back(str_cat("rank ", rank, " at ", endpoints[rank].host));
  }
  if (near.empty() || far.empty()) return;
  throw_error(ErrorCode::kEnvironment,
              {.what = "the ranks do not agree about their network: some listen where only their "
                       "own machine reaches them",
               .where = join(near, ", "),
               .expected = "addresses that all ranks reach, or loopback at every rank of a job on "
                           "one machine",
               .got = str_cat("others listen for other machines: ", join(far, ", ")),
               .fix = "set FLEET_SOCKET_IFNAME to the interface of the job's network on every "
                      "machine, and give rank 0's address in it"});
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

SocketRanks::SocketRanks(const MembershipOptions& options, const std::string& interfaces,
                         Duration silence, Logger logger)
    : patience_(options.heartbeat_timeout), network_(options.transport) {
  made_ = std::make_unique<transport::SocketPeers>(
      loop_, network_, peer_options(options, interfaces, silence), std::move(logger));
  peers_ = made_.get();
}

SocketRanks::~SocketRanks() = default;

transport::SocketPeersOptions SocketRanks::peer_options(const MembershipOptions& options,
                                                        const std::string& interfaces,
                                                        Duration silence) {
  transport::SocketPeersOptions made;
  made.hello = hello_of(options);
  made.listen = listening_endpoint(options.cluster, interfaces);
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
  endpoint_ = made_->bound();
  const auto endpoints =
      endpoints_of(membership.gather("where ranks listen", endpoint_.to_string()));
  check_reach(endpoints);
  made_->connect(endpoints);
  return transport::make_communicator(std::move(made_));
}

void SocketRanks::leave() {
  (void)peers_->leave(patience_);
}

}  // namespace fleet::strategies
