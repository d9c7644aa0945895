// The attempts of a job: whether there is another one, and what the user is told of it.
#pragma once

#include <optional>
#include <string>

#include "base/clock.h"
#include "launch/console.h"
#include "launch/restarts/attempt_history.h"
#include "launch/restarts/restart_policy.h"

namespace fleet::launch {

struct FailedAttempt {
  TimePoint when;
  std::string reason;     // "worker 1 was killed by SIGKILL"
  std::string why_final;  // why another attempt would fail in the same way, if that is known
  StepsSeen steps;
};

class JobRestarts {
 public:
  // The first attempt begins now. The console outlives this.
  JobRestarts(const RestartLimits& limits, TimePoint now, Console& console);

  // How many there were.
  int count() const { return history_.restarts(); }
  // Null where a job is never started again.
  const AttemptHistory* history() const { return limits_.most > 0 ? &history_ : nullptr; }

  // After how long the next attempt begins; nothing when there is none. Either is said, but for a
  // job that is never started again.
  std::optional<Duration> after(const FailedAttempt& attempt);
  // A signal ended the job after its failure.
  void cancel(int signal);
  // The next attempt begins. Returns its Job::log_heading.
  std::string begin(TimePoint now);

 private:
  RestartLimits limits_;
  Console& console_;
  RestartPolicy policy_;
  AttemptHistory history_;
};

}  // namespace fleet::launch
