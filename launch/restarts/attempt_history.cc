#include "launch/restarts/attempt_history.h"

#include <algorithm>
#include <utility>

namespace fleet::launch {

void StepsSeen::see(double step, TimePoint now) {
  if (!(step > 0)) return;
  if (!first) {
    first = step;
    first_at = now;
  }
  highest = std::max(step, highest.value_or(step));
}

AttemptHistory::AttemptHistory(TimePoint now) {
  begin(now);
}

void AttemptHistory::begin(TimePoint now) {
  attempts_.push_back({.began = now, .failed = std::nullopt, .reason = "", .steps = {}});
}

void AttemptHistory::fail(TimePoint when, std::string reason, const StepsSeen& steps) {
  Attempt& attempt = attempts_.back();
  attempt.failed = when;
  attempt.reason = std::move(reason);
  attempt.steps = steps;
}

std::vector<Restart> AttemptHistory::list(const StepsSeen& steps, TimePoint now) const {
  std::vector<Attempt> attempts = attempts_;
  if (!attempts.back().failed) attempts.back().steps = steps;
  const bool tells = std::any_of(attempts.begin(), attempts.end(),
                                 [](const Attempt& a) { return a.steps.first.has_value(); });
  std::vector<Restart> restarts;
  std::optional<double> highest;  // of the last attempt that told of steps
  for (size_t i = 0; i + 1 < attempts.size(); ++i) {
    const Attempt& before = attempts[i];
    const Attempt& next = attempts[i + 1];
    if (before.steps.highest) highest = before.steps.highest;
    Restart restart{
        .failed = *before.failed, .reason = before.reason, .lost = {}, .steps_repeated = {}};
    const TimePoint again = next.steps.first ? next.steps.first_at
                            : tells          ? next.failed.value_or(now)
                                             : next.began;
    restart.lost = again - restart.failed;
    if (highest && next.steps.first) {
      restart.steps_repeated = std::max(0.0, *highest - *next.steps.first + 1);
    }
    restarts.push_back(std::move(restart));
  }
  return restarts;
}

Restart sum_of(const std::vector<Restart>& restarts) {
  Restart sum{};
  for (const Restart& restart : restarts) {
    sum.lost += restart.lost;
    if (restart.steps_repeated) {
      sum.steps_repeated = sum.steps_repeated.value_or(0) + *restart.steps_repeated;
    }
  }
  return sum;
}

}  // namespace fleet::launch
