#include "launch/restarts/job_restarts.h"

#include "base/strings.h"
#include "launch/process/child.h"

namespace fleet::launch {

JobRestarts::JobRestarts(const RestartLimits& limits, TimePoint now, Console& console)
    : limits_(limits), console_(console), policy_(limits), history_(now) {}

std::optional<Duration> JobRestarts::after(const FailedAttempt& attempt) {
  history_.fail(attempt.when, attempt.reason, attempt.steps);
  if (limits_.most == 0) return std::nullopt;
  RestartDecision decision{.delay = {}, .why_not = attempt.why_final};
  if (attempt.why_final.empty()) decision = policy_.after(history_.last());
  if (!decision.delay) {
    console_.complain("not started again: " + decision.why_not);
  } else if (*decision.delay > Duration(0)) {
    console_.say(
        str_cat(policy_.attempt_text(count() + 1), " begins in ", seconds_text(*decision.delay)));
  }
  return decision.delay;
}

void JobRestarts::cancel(int signal) {
  if (limits_.most > 0) console_.say(signal_name(signal) + ": not started again");
}

std::string JobRestarts::begin(TimePoint now) {
  const Attempt failed = history_.last();
  history_.begin(now);
  const std::string text = policy_.attempt_text(count());
  console_.say(str_cat(text, " begins ", seconds_text(now - *failed.failed),
                       " after the failure: ", failed.reason));
  return str_cat("== ", text, ", ", failed.reason);
}

}  // namespace fleet::launch
