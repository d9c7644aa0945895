#include "strategies/parameter_server/client/blocking_worker_node.h"

#include <utility>

#include "base/strings.h"

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

// The verdict counts for more than the broken connections that come with it.
void BlockingWorkerNode::fail(const Status& why, Phase phase, std::string_view what,
                              Duration elapsed) {
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

void BlockingWorkerNode::ask_coordinator(Phase phase, std::string_view what,
                                         const std::function<Status()>& call) {
  const Phase before = member().phase();
  set_phase(phase);
  const TimePoint begin = environment_.data_loop->now();
  const Status status = call();
  if (!status.ok()) fail(status, phase, what, environment_.data_loop->now() - begin);
  set_phase(before);
}

void BlockingWorkerNode::barrier(const std::string& name) {
  ask_coordinator(Phase::kBarrier, name,
                  [&] { return member().barrier(transport::Group::kWorkers, name); });
}

std::vector<double> BlockingWorkerNode::all_reduce(const std::vector<double>& values) {
  constexpr std::string_view kName = "all_reduce_worker";
  std::vector<double> sums;
  ask_coordinator(Phase::kReducing, kName, [&]() -> Status {
    auto result = member().reduce(transport::Group::kWorkers, std::string(kName),
                                  transport::ReduceOp::kSum, values);
    if (!result.ok()) return result.status();
    sums = std::get<std::vector<double>>(std::move(result).value());
    return {};
  });
  return sums;
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
