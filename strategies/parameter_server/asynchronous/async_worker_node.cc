#include "strategies/parameter_server/asynchronous/async_worker_node.h"

#include <utility>

namespace fleet::strategies {

using transport::Phase;

AsyncWorkerNode::AsyncWorkerNode(NodeEnvironment environment, ParameterServerConfig config,
                                 Logger logger)
    : environment_(std::move(environment)), config_(std::move(config)), logger_(std::move(logger)) {
  const transport::Hello hello =
      make_hello(config_, transport::Role::kWorker, environment_.incarnation);
  communicator_ = std::make_unique<AsyncCommunicator>(
      *environment_.data_loop, *environment_.network, config_, hello, environment_.random, logger_);
  environment_.on_control([&] {
    member_ = std::make_unique<transport::CoordinatorClient>(
        *environment_.control_loop, *environment_.network,
        make_member_options(config_, environment_, transport::Role::kWorker,
                            config_.servers.front()),
        logger_);
    member_->set_on_verdict([this, alive = alive_](const transport::Verdict& verdict) {
      environment_.data_loop->post([this, alive, verdict] {
        if (*alive) on_verdict(verdict);
      });
    });
  });
}

AsyncWorkerNode::~AsyncWorkerNode() {
  *alive_ = false;
  transport::Verdict verdict;
  verdict.culprit = {transport::Role::kWorker, config_.index};
  verdict.phase = member_->phase();
  verdict.step = member_->step();
  verdict.reason = "it left before it had completed";
  environment_.on_control([&] {
    if (started_ && !stopped_ && !member_->verdict()) member_->abort_async(verdict);
    member_.reset();
  });
}

void AsyncWorkerNode::start() {
  if (started_) return;
  started_ = true;
  set_phase(Phase::kConnecting, 1);
  environment_.on_control([this] { member_->start(); });
  communicator_->start();
}

void AsyncWorkerNode::set_on_failure(std::function<void(const Status&)> on_failure) {
  on_failure_ = std::move(on_failure);
}

void AsyncWorkerNode::on_verdict(const transport::Verdict& verdict) {
  if (!verdict_.ok()) return;
  verdict_ = verdict.to_status();
  tell_failure();
  communicator_->fail_all(verdict_);
}

Status AsyncWorkerNode::status() const {
  return verdict_.ok() ? communicator_->status() : verdict_;
}

void AsyncWorkerNode::check() {
  if (!status().ok()) tell_failure();
}

void AsyncWorkerNode::tell_failure() {
  if (const auto tell = std::exchange(on_failure_, nullptr)) tell(status());
}

void AsyncWorkerNode::abort(const Status& why, Phase phase, uint64_t step) {
  if (member_->verdict()) return;
  transport::Verdict verdict;
  verdict.culprit = {transport::Role::kWorker, config_.index};
  verdict.phase = phase;
  verdict.step = step;
  verdict.code = why.code();
  verdict.reason = why.text().what;
  member_->abort(std::move(verdict));
}

void AsyncWorkerNode::stop(std::function<void(const Status&)> done) {
  stopped_ = true;
  set_phase(Phase::kFinishing, communicator_->step() + 1);
  communicator_->set_on_idle([this, done = std::move(done)] {
    communicator_->set_on_idle(nullptr);
    if (!status().ok()) return done(status());
    communicator_->finish();
    // The destructor waits for the control loop, so this object is there.
    environment_.control_loop->post([this, alive = alive_, done] {
      member_->complete_async([this, alive, done](const Status& status) {
        environment_.data_loop->post([alive, done, status] {
          if (*alive) done(status);
        });
      });
    });
  });
  communicator_->complete();
}

}  // namespace fleet::strategies
