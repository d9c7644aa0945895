#include "launch/restarts/attempts.h"

#include <utility>

#include "base/strings.h"
#include "launch/process/child.h"

namespace fleet::launch {
namespace {

constexpr Duration kTimeToTell = std::chrono::seconds(2);

}  // namespace

Attempts::Attempts(Factory make, const RestartLimits& limits, const SupervisorOptions& supervision,
                   EventLoop& loop, Console& console)
    : make_(std::move(make)),
      limits_(limits),
      supervision_(supervision),
      loop_(loop),
      console_(console),
      policy_(limits),
      history_(loop.now()) {
  if (limits.most > 0) supervision_.history = &history_;
}

int Attempts::run() {
  while (true) {
    if (const auto code = run_one()) return *code;
    begin_next();
  }
}

std::optional<int> Attempts::run_one() {
  const std::unique_ptr<AttemptParts> parts = make_(history_.restarts(), log_heading_);
  SupervisorOptions options = supervision_;
  if (parts->notice) {
    options.on_death = [&notice = *parts->notice](Role role, int index, const std::string& how) {
      notice.tell(role, index, how);
    };
  }
  Supervisor supervisor(parts->job, options, loop_, console_);
  const RunEnd end = supervisor.run(*parts->host);
  std::optional<int> code = end.code();
  if (end.failed && limits_.most > 0) {
    history_.fail(end.failed_at, end.reason, end.steps);
    code = after_failure(supervisor, end);
  }
  if (code) supervisor.show_end();
  if (parts->notice) parts->notice->finish(kTimeToTell);
  return code;
}

std::optional<int> Attempts::after_failure(Supervisor& supervisor, const RunEnd& end) {
  int signal = end.interrupted_by;
  RestartDecision decision{.delay = {}, .why_not = end.why_final};
  if (signal == 0 && end.why_final.empty()) decision = policy_.after(history_.last());
  if (signal == 0 && decision.delay) {
    if (*decision.delay > Duration(0)) {
      console_.say(str_cat(policy_.attempt_text(history_.restarts() + 1), " begins in ",
                           seconds_text(*decision.delay)));
    }
    signal = supervisor.wait(*decision.delay);
    if (signal == 0) return std::nullopt;
  }
  if (signal == 0) {
    console_.complain("not started again: " + decision.why_not);
    return kExitFailed;
  }
  console_.say(signal_name(signal) + ": not started again");
  return 128 + signal;
}

void Attempts::begin_next() {
  const Attempt failed = history_.last();
  history_.begin(loop_.now());
  const std::string text = policy_.attempt_text(history_.restarts());
  log_heading_ = str_cat("== ", text, ", ", failed.reason);
  console_.say(str_cat(text, " begins ", seconds_text(loop_.now() - *failed.failed),
                       " after the failure: ", failed.reason));
}

}  // namespace fleet::launch
