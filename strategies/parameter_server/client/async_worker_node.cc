#include "strategies/parameter_server/client/async_worker_node.h"

#include <utility>

namespace fleet::strategies {

using transport::Phase;

AsyncWorkerNode::AsyncWorkerNode(NodeEnvironment environment, ParameterServerConfig config,
                                 Logger logger)
    : environment_(std::move(environment)), config_(std::move(config)), logger_(std::move(logger)) {
  const transport::Hello hello =
      make_hello(config_, transport::Role::kWorker, environment_.incarnation);
  client_ = std::make_unique<AsyncClient>(*environment_.data_loop, *environment_.network, config_,
                                          hello, environment_.random, logger_);
  WorkerMember::Events events;
  events.on_verdict = [this] {
    tell_failure();
    client_->fail_all(member_->status());
  };
  events.on_joined = [this] {
    if (on_joined_) on_joined_();
  };
  member_.emplace(environment_, config_, logger_, std::move(events));
}

void AsyncWorkerNode::start() {
  if (member_->started()) return;
  set_phase(Phase::kConnecting, 1);
  member_->start();
  client_->start();
}

void AsyncWorkerNode::set_on_failure(std::function<void(const Status&)> on_failure) {
  on_failure_ = std::move(on_failure);
}

Status AsyncWorkerNode::status() const {
  return member_->status().ok() ? client_->status() : member_->status();
}

void AsyncWorkerNode::check() {
  if (!status().ok()) tell_failure();
}

void AsyncWorkerNode::tell_failure() {
  if (const auto tell = std::exchange(on_failure_, nullptr)) tell(status());
}

void AsyncWorkerNode::abort(const Status& why, Phase phase, uint64_t step) {
  member_->abort(why, phase, step);
}

void AsyncWorkerNode::stop(std::function<void(const Status&)> done) {
  member_->stop();
  set_phase(Phase::kFinishing, client_->step() + 1);
  client_->set_on_idle([this, done = std::move(done)] {
    client_->set_on_idle(nullptr);
    if (!status().ok()) return done(status());
    client_->finish();
    member_->complete_async(done);
  });
  client_->complete();
}

}  // namespace fleet::strategies
