#include "strategies/parameter_server/client/sync_worker_node.h"

#include <utility>

#include "base/strings.h"

namespace fleet::strategies {

using transport::Phase;

SyncWorkerNode::SyncWorkerNode(NodeEnvironment environment, ParameterServerConfig config,
                               Logger logger)
    : environment_(std::move(environment)), config_(std::move(config)), logger_(std::move(logger)) {
  const transport::Hello hello =
      make_hello(config_, transport::Role::kWorker, environment_.incarnation);
  client_ = std::make_unique<SyncClient>(*environment_.data_loop, *environment_.network, config_,
                                         hello, environment_.random, logger_);
  WorkerMember::Events events;
  events.on_verdict = [this] { client_->fail_all(member_->status()); };
  member_.emplace(environment_, config_, logger_, std::move(events));
}

void SyncWorkerNode::start() {
  set_phase(Phase::kConnecting);
  member_->start();
  client_->start();
}

Status SyncWorkerNode::status() const {
  return member_->status().ok() ? client_->status() : member_->status();
}

void SyncWorkerNode::set_phase(Phase phase) {
  member_->set_phase(phase, client_->step() + 1);
}

void SyncWorkerNode::poll() {
  if (environment_.poll) environment_.poll();
}

void SyncWorkerNode::wait(Phase phase, std::string_view what) {
  wait_until([this] { return client_->idle() && member_->joined(); }, phase, what);
}

void SyncWorkerNode::wait_settled() {
  wait_until([this] { return client_->settled(); }, Phase::kSending, "send");
}

void SyncWorkerNode::wait_until(const std::function<bool()>& reached, Phase phase,
                                std::string_view what) {
  set_phase(phase);
  const TimePoint begin = environment_.data_loop->now();
  const auto over = [&] { return reached() || !status().ok(); };
  const bool driven = environment_.data_loop->run_until(over, TimePoint::max());
  Status why = status();
  if (why.ok() && !driven && !over()) {
    why = {ErrorCode::kCancelled,
           {.what = "the loop was stopped while a worker waited",
            .where = {},
            .expected = {},
            .got = {},
            .fix = {}}};
  }
  if (!why.ok()) fail(why, phase, what, environment_.data_loop->now() - begin);
}

// The verdict counts for more than the broken connections that come with it.
void SyncWorkerNode::fail(const Status& why, Phase phase, std::string_view what, Duration elapsed) {
  std::vector<std::string> peers;
  for (const uint32_t server : client_->waiting_for()) {
    peers.push_back(str_cat("server ", server));
  }
  client_->fail_all(why);
  member_->abort(why, phase, client_->step() + 1);
  const double seconds = std::chrono::duration<double>(elapsed).count();
  ErrorText text = why.text();
  text.where =
      str_cat(text.where, text.where.empty() ? "" : "; ", "worker ", config_.index, " in phase ",
              transport::phase_name(phase), " (", what, ") of step ", client_->step() + 1,
              ", after ", seconds, " s", peers.empty() ? "" : ", waiting for ", join(peers, ", "));
  throw_error(why.code(), std::move(text));
}

void SyncWorkerNode::barrier(const std::string& name) {
  const Phase before = member().phase();
  set_phase(Phase::kBarrier);
  const TimePoint begin = environment_.data_loop->now();
  const Status status = member().barrier(transport::Group::kWorkers, name);
  if (!status.ok()) {
    fail(status, Phase::kBarrier, name, environment_.data_loop->now() - begin);
  }
  set_phase(before);
}

std::vector<double> SyncWorkerNode::all_reduce(const std::vector<double>& values) {
  const Phase before = member().phase();
  set_phase(Phase::kReducing);
  const TimePoint begin = environment_.data_loop->now();
  auto result = member().reduce(transport::Group::kWorkers, "all_reduce_worker",
                                transport::ReduceOp::kSum, values);
  if (!result.ok()) {
    fail(result.status(), Phase::kReducing, "all_reduce_worker",
         environment_.data_loop->now() - begin);
  }
  set_phase(before);
  return std::get<std::vector<double>>(std::move(result).value());
}

void SyncWorkerNode::stop() {
  if (stopped()) return;
  member_->stop();
  client_->complete();
  wait(Phase::kFinishing, "stop_worker");
  const Status status = member().complete();
  if (!status.ok()) fail(status, Phase::kFinishing, "stop_worker", Duration(0));
  client_->finish();
}

void SyncWorkerNode::stop_async(std::function<void(const Status&)> done) {
  member_->stop();
  set_phase(Phase::kFinishing);
  client_->set_on_idle([this, done = std::move(done)] {
    client_->set_on_idle(nullptr);
    if (!status().ok()) return done(status());
    client_->finish();
    member().complete_async(done);
  });
  client_->complete();
}

}  // namespace fleet::strategies
