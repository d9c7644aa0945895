#include "strategies/parameter_server/client/blocking_worker_node.h"

namespace fleet::strategies {

using transport::Phase;

void BlockingWorkerNode::poll() {
  if (environment_.poll) environment_.poll();
}

void BlockingWorkerNode::wait(Phase phase, std::string_view what) {
  wait_until([this] { return client_->idle() && member_->joined(); }, phase, what);
}

void BlockingWorkerNode::wait_drained() {
  wait_until([this] { return client_->drained(); }, Phase::kSending, "send");
}

void BlockingWorkerNode::wait_until(const std::function<bool()>& reached, Phase phase,
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

void BlockingWorkerNode::fail(const Status& why, Phase phase, std::string_view what,
                              Duration elapsed) {
  const auto peers = give_up(why);
  const uint64_t step = client_->step() + 1;
  abort(why, phase, step);
  throw_failure(why, phase, what, step, elapsed, peers);
}

void BlockingWorkerNode::ask_coordinator(Phase phase, std::string_view what,
                                         const std::function<Status()>& call) {
  const Phase before = member().phase();
  set_phase(phase);
  const TimePoint begin = environment_.data_loop->now();
  const Status status = call();
  if (!status.ok()) fail(status, phase, what, environment_.data_loop->now() - begin);
  set_phase(before);
}

void BlockingWorkerNode::barrier(transport::Group group, const std::string& name) {
  ask_coordinator(Phase::kBarrier, name, [&] { return WorkerNode::barrier(group, name); });
}

std::vector<double> BlockingWorkerNode::all_reduce(transport::Group group, const std::string& name,
                                                   std::vector<double> values) {
  ask_coordinator(Phase::kReducing, name,
                  [&] { return WorkerNode::all_reduce(group, name, values); });
  return values;
}

void BlockingWorkerNode::stop() {
  if (stopped()) return;
  member_->stop();
  client_->complete();
  wait(Phase::kFinishing, "stop_worker");
  const Status status = member().complete();
  if (!status.ok()) fail(status, Phase::kFinishing, "stop_worker", Duration(0));
  client_->finish();
}

}  // namespace fleet::strategies
