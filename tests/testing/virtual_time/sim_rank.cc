#include "tests/testing/virtual_time/sim_rank.h"

#include <utility>

#include "transport/collective/communicator.h"

namespace fleet::testing {
namespace {

constexpr uint16_t kFirstPort = 7000;

}  // namespace

SimRank::SimRank(SimProcess& process, const role_maker::ClusterSpec& cluster, uint64_t incarnation,
                 strategies::CollectiveRuntimeOptions options, const fluid::Program& origin,
                 const fluid::Program& main)
    : process_(process),
      cluster_(cluster),
      incarnation_(incarnation),
      origin_(origin),
      ops_(
          cluster, [this] { return connect(); }, std::move(options)) {
  ops_.expect(main);
}

std::unique_ptr<transport::CollectiveCommunicator> SimRank::connect() {
  const strategies::NodeEnvironment node = process_.node(incarnation_);
  transport::SocketPeersOptions options;
  options.hello.job_id = cluster_.job_id;
  options.hello.member = {transport::PeerRole::kWorker, static_cast<uint32_t>(cluster_.index)};
  options.hello.worker_num = static_cast<uint32_t>(cluster_.worker_num);
  options.hello.incarnation = node.incarnation;
  options.hello.instruction_set = transport::instruction_set();
  options.secret = transport::Secret::of_text("a secret of the simulation", "test");
  options.spins = false;
  options.random = node.random;
  std::vector<Endpoint> endpoints;
  endpoints.reserve(static_cast<size_t>(cluster_.worker_num));
  for (int rank = 0; rank < cluster_.worker_num; ++rank) {
    endpoints.push_back({"sim", static_cast<uint16_t>(kFirstPort + rank)});
  }
  options.listen = endpoints[static_cast<size_t>(cluster_.index)];
  auto peers = std::make_unique<transport::SocketPeers>(process_.data_loop(), process_.network(),
                                                        std::move(options), Logger(LogLevel::kOff));
  peers_ = peers.get();
  peers->listen().throw_if_error();
  peers->connect(endpoints);
  return transport::make_communicator(std::move(peers));
}

void SimRank::stop_worker() {
  if (!ops_.connected()) return;
  ops_.leave();
  static_cast<void>(peers_->leave(std::chrono::seconds(10)));
  ops_.disconnect();
}

void SimRank::begin_saving(fluid::Scope& scope) {
  std::vector<std::string> persistables;
  for (const fluid::VarDesc* var : origin_.global_block().vars()) {
    if (var->persistable) persistables.push_back(var->name);
  }
  std::vector<std::string> parameters;
  for (const auto* parameter : origin_.global_block().parameters()) {
    parameters.push_back(parameter->name);
  }
  ops_.align(persistables, parameters, scope);
}

}  // namespace fleet::testing
