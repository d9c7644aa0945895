#include "strategies/parameter_server/client/worker_node.h"

#include "base/strings.h"
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

template <class Client>
Status WorkerNode<Client>::all_reduce(transport::Group group, const std::string& name,
                                      std::vector<double>& values, std::optional<uint64_t> saves) {
  auto result = member().reduce(group, name, transport::ReduceOp::kSum, values, Duration(0), saves);
  if (!result.ok()) return result.status();
  values = std::get<std::vector<double>>(std::move(result).value());
  return {};
}

template <class Client>
std::vector<std::string> WorkerNode<Client>::give_up(const Status& why) {
  std::vector<std::string> peers;
  for (const uint32_t server : client_->waiting_for()) {
    peers.push_back(str_cat("server ", server));
  }
  client_->fail_all(why);
  return peers;
}

template <class Client>
void WorkerNode<Client>::throw_failure(const Status& why, transport::Phase phase,
                                       std::string_view what, uint64_t step, Duration elapsed,
                                       const std::vector<std::string>& peers) const {
  ErrorText text = why.text();
  text.where = str_cat(text.where, text.where.empty() ? "" : "; ", "worker ", config_.index,
                       " in phase ", transport::phase_name(phase), " (", what, ") of step ", step,
                       ", after ", std::chrono::duration<double>(elapsed).count(), " s",
                       peers.empty() ? "" : ", waiting for ", join(peers, ", "));
  throw_error(why.code(), std::move(text));
}

template class WorkerNode<SyncClient>;
template class WorkerNode<AsyncClient>;

}  // namespace fleet::strategies
