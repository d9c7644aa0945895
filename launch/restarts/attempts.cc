#include "launch/restarts/attempts.h"

#include <utility>

namespace fleet::launch {

Attempts::Attempts(Factory make, const RestartLimits& limits, const SupervisorOptions& supervision,
                   EventLoop& loop, Console& console)
    : make_(std::move(make)),
      may_restart_(limits.most > 0),
      restarts_(limits, loop.now(), console),
      supervision_(supervision),
      loop_(loop),
      console_(console) {
  supervision_.history = restarts_.history();
}

int Attempts::run() {
  while (true) {
    if (const auto code = run_one()) return *code;
    log_heading_ = restarts_.begin(loop_.now());
  }
}

std::optional<int> Attempts::run_one() {
  const std::unique_ptr<AttemptParts> parts = make_(restarts_.count(), log_heading_);
  Supervisor supervisor(parts->job, parts->with_notice(supervision_), loop_, console_);
  const RunEnd end = supervisor.run(*parts->host);
  std::optional<int> code = end.code();
  if (end.failed && may_restart_) code = after_failure(supervisor, end);
  if (code) supervisor.show_end();
  parts->finish();
  return code;
}

std::optional<int> Attempts::after_failure(Supervisor& supervisor, const RunEnd& end) {
  const FailedAttempt failed{end.failed_at, end.reason, end.why_final, end.steps};
  int signal = end.interrupted_by;
  if (signal == 0) {
    const auto delay = restarts_.after(failed);
    if (!delay) return kExitFailed;
    signal = supervisor.wait(*delay);
    if (signal == 0) return std::nullopt;
  }
  restarts_.cancel(signal);
  return 128 + signal;
}

}  // namespace fleet::launch
