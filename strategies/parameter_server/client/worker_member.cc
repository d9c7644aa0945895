#include "strategies/parameter_server/client/worker_member.h"

#include <utility>

namespace fleet::strategies {

using transport::Phase;
using transport::Verdict;

WorkerMember::WorkerMember(const NodeEnvironment& environment, const ParameterServerConfig& config,
                           const Logger& logger, Events events)
    : environment_(environment), config_(config), events_(std::move(events)) {
  environment_.on_control([&] {
    transport::CoordinatorClientOptions options = make_member_options(
        config_, environment_, transport::PeerRole::kWorker, config_.servers.front());
    // The data lane to the same server does.
    options.tell_unreachable = false;
    client_ = std::make_unique<transport::CoordinatorClient>(
        *environment_.control_loop, *environment_.network, std::move(options), logger);
    client_->set_on_verdict([this, alive = alive_](const Verdict& verdict) {
      environment_.data_loop->post([this, alive, verdict] {
        if (*alive) this->on_verdict(verdict);
      });
    });
    client_->set_on_joined([this, alive = alive_] {
      environment_.data_loop->post([this, alive] {
        if (*alive) on_joined();
      });
    });
  });
}

WorkerMember::~WorkerMember() {
  at_exit_.reset();
  *alive_ = false;
  leave_early();
  environment_.on_control([this] { client_.reset(); });
}

void WorkerMember::leave_early() {
  environment_.on_control([this] {
    if (!started_ || stopped_ || client_->verdict()) return;
    client_->abort_async(transport::left_early(id(), client_->phase(), client_->step()));
  });
}

void WorkerMember::start() {
  started_ = true;
  environment_.on_control([this] { client_->start(); });
  if (!environment_.end_threads) return;
  at_exit_.emplace([this] {
    leave_early();
    environment_.end_threads();
  });
}

void WorkerMember::on_joined() {
  joined_ = true;
  if (events_.on_joined) events_.on_joined();
}

void WorkerMember::on_verdict(const Verdict& verdict) {
  if (!verdict_.ok()) return;
  verdict_ = verdict.to_status();
  events_.on_verdict();
}

void WorkerMember::abort(const Status& why, Phase phase, uint64_t step) {
  if (client_->verdict()) return;
  client_->abort(Verdict{id(), phase, step, why.code(), why.text().what});
}

void WorkerMember::complete_async(std::function<void(const Status&)> done) {
  // The destructor waits for the control loop, so this object is there.
  environment_.control_loop->post([this, alive = alive_, done = std::move(done)] {
    client_->complete_async([this, alive, done](const Status& status) {
      environment_.data_loop->post([alive, done, status] {
        if (*alive) done(status);
      });
    });
  });
}

}  // namespace fleet::strategies
