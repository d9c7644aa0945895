#include "strategies/parameter_server/synchronous/worker_node.h"

#include <utility>

#include "base/strings.h"

namespace fleet::strategies {

using transport::Phase;

WorkerNode::WorkerNode(NodeEnvironment environment, ParameterServerConfig config, Logger logger)
    : environment_(std::move(environment)), config_(std::move(config)), logger_(std::move(logger)) {
  const transport::Hello hello =
      make_hello(config_, transport::Role::kWorker, environment_.incarnation);
  communicator_ = std::make_unique<Communicator>(*environment_.data_loop, *environment_.network,
                                                 config_, hello, environment_.random, logger_);
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

WorkerNode::~WorkerNode() {
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

void WorkerNode::start() {
  started_ = true;
  set_phase(Phase::kConnecting);
  environment_.on_control([this] { member_->start(); });
  communicator_->start();
}

void WorkerNode::on_verdict(const transport::Verdict& verdict) {
  if (!verdict_.ok()) return;
  verdict_ = verdict.to_status();
  communicator_->fail_all(verdict_);
}

Status WorkerNode::status() const {
  return verdict_.ok() ? communicator_->status() : verdict_;
}

void WorkerNode::set_phase(Phase phase) {
  member_->set_phase(phase, communicator_->step() + 1);
}

void WorkerNode::poll() {
  if (environment_.poll) environment_.poll();
}

void WorkerNode::wait(Phase phase, std::string_view what) {
  set_phase(phase);
  const TimePoint begin = environment_.data_loop->now();
  const auto over = [this] { return communicator_->idle() || !status().ok(); };
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
void WorkerNode::fail(const Status& why, Phase phase, std::string_view what, Duration elapsed) {
  std::vector<std::string> peers;
  for (const uint32_t server : communicator_->waiting_for()) {
    peers.push_back(str_cat("server ", server));
  }
  communicator_->fail_all(why);
  const bool judged = member_->verdict().has_value();
  if (!judged) {
    transport::Verdict verdict;
    verdict.culprit = {transport::Role::kWorker, config_.index};
    verdict.phase = phase;
    verdict.step = communicator_->step() + 1;
    verdict.code = why.code();
    verdict.reason = why.text().what;
    member_->abort(std::move(verdict));
  }
  const double seconds = std::chrono::duration<double>(elapsed).count();
  ErrorText text = why.text();
  text.where =
      str_cat(text.where, text.where.empty() ? "" : "; ", "worker ", config_.index, " in phase ",
              transport::phase_name(phase), " (", what, ") of step ", communicator_->step() + 1,
              ", after ", seconds, " s", peers.empty() ? "" : ", waiting for ", join(peers, ", "));
  throw_error(why.code(), std::move(text));
}

void WorkerNode::barrier(const std::string& name) {
  const Phase before = member_->phase();
  set_phase(Phase::kBarrier);
  const TimePoint begin = environment_.data_loop->now();
  const Status status = member_->barrier(transport::Group::kWorkers, name);
  if (!status.ok()) {
    fail(status, Phase::kBarrier, name, environment_.data_loop->now() - begin);
  }
  set_phase(before);
}

std::vector<double> WorkerNode::all_reduce(const std::vector<double>& values) {
  const Phase before = member_->phase();
  set_phase(Phase::kReducing);
  const TimePoint begin = environment_.data_loop->now();
  auto result = member_->reduce(transport::Group::kWorkers, "all_reduce_worker",
                                transport::ReduceOp::kSum, values);
  if (!result.ok()) {
    fail(result.status(), Phase::kReducing, "all_reduce_worker",
         environment_.data_loop->now() - begin);
  }
  set_phase(before);
  return std::get<std::vector<double>>(std::move(result).value());
}

void WorkerNode::stop() {
  if (stopped_) return;
  stopped_ = true;
  communicator_->complete();
  wait(Phase::kFinishing, "stop_worker");
  const Status status = member_->complete();
  if (!status.ok()) fail(status, Phase::kFinishing, "stop_worker", Duration(0));
  communicator_->finish();
}

void WorkerNode::stop_async(std::function<void(const Status&)> done) {
  stopped_ = true;
  set_phase(Phase::kFinishing);
  communicator_->set_on_idle([this, done = std::move(done)] {
    communicator_->set_on_idle(nullptr);
    if (!status().ok()) return done(status());
    communicator_->finish();
    member_->complete_async(done);
  });
  communicator_->complete();
}

}  // namespace fleet::strategies
