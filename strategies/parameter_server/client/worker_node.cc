#include "strategies/parameter_server/client/worker_node.h"

#include "strategies/parameter_server/client/async_client.h"
#include "strategies/parameter_server/client/sync_client.h"

namespace fleet::strategies {

template <class Client>
WorkerNode<Client>::WorkerNode(NodeEnvironment environment, ParameterServerConfig config,
                               const Logger& logger)
    : environment_(std::move(environment)), config_(std::move(config)) {
  client_ = std::make_unique<Client>(
      *environment_.data_loop, *environment_.network, config_,
      make_hello(config_, transport::PeerRole::kWorker, environment_.incarnation),
      environment_.random, logger);
  WorkerMember::Events events;
  events.on_verdict = [this] {
    tell_failure();
    client_->fail_all(member_->status());
  };
  events.on_joined = [this] {
    if (on_joined_) on_joined_();
  };
  member_.emplace(environment_, config_, logger, std::move(events));
}

template <class Client>
void WorkerNode<Client>::start() {
  if (member_->started()) return;
  set_phase(transport::Phase::kConnecting, 1);
  member_->start();
  client_->start();
}

template <class Client>
void WorkerNode<Client>::stop_async(std::function<void(const Status&)> done) {
  member_->stop();
  set_phase(transport::Phase::kFinishing, client_->step() + 1);
  client_->set_on_idle([this, done = std::move(done)] {
    client_->set_on_idle(nullptr);
    if (!status().ok()) return done(status());
    client_->finish();
    member_->complete_async(done);
  });
  client_->complete();
}

template class WorkerNode<SyncClient>;
template class WorkerNode<AsyncClient>;

}  // namespace fleet::strategies
