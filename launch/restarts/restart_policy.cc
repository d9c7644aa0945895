#include "launch/restarts/restart_policy.h"

#include <algorithm>
#include <utility>

#include "base/display.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

using std::chrono::seconds;

constexpr Duration kShortLife = seconds(5);
constexpr Duration kFirstWait = seconds(1);
constexpr Duration kLongestWait = seconds(30);
constexpr int kSamePlace = 3;

std::string whole_seconds(Duration duration) {
  return str_cat(std::chrono::duration<double>(duration).count(), " s");
}

}  // namespace

RestartPolicy::Progress RestartPolicy::progress_of(const Attempt& attempt) {
  const auto highest = attempt.steps.highest;
  if (highest && (!highest_ || *highest > *highest_)) {
    highest_ = highest;
    return Progress::kFurther;
  }
  const bool lived = *attempt.failed - attempt.began >= kShortLife;
  return !highest_ && lived ? Progress::kUnknown : Progress::kNone;
}

std::string RestartPolicy::same_place(const Attempt& attempt) const {
  if (attempt.steps.highest) {
    return str_cat("it died ", without_progress_ + 1,
                   " times at the same place: no attempt got beyond step ", fixed(*highest_, 0));
  }
  return str_cat("it died ", without_progress_, " times at the same place: ",
                 highest_ ? std::string("before its first step")
                          : "within " + whole_seconds(kShortLife) + " of its start");
}

Duration RestartPolicy::next_delay(Progress progress) {
  const bool at_once = progress == Progress::kFurther || wait_ == Duration(0);
  const Duration delay = at_once ? Duration(0) : wait_;
  wait_ = at_once ? kFirstWait : std::min(2 * wait_, kLongestWait);
  return delay;
}

RestartDecision RestartPolicy::after(const Attempt& attempt) {
  const Progress progress = progress_of(attempt);
  without_progress_ = progress == Progress::kNone ? without_progress_ + 1 : 0;
  if (without_progress_ >= kSamePlace) return {.delay = {}, .why_not = same_place(attempt)};
  const Duration delay = next_delay(progress);
  const TimePoint again = *attempt.failed + delay;
  while (limits_.window && !restarts_.empty() && restarts_.front() + *limits_.window <= again) {
    restarts_.pop_front();
  }
  if (static_cast<int>(restarts_.size()) >= limits_.most) {
    std::string why = limits_.most == 1 ? "the one restart is used"
                                        : str_cat("all ", limits_.most, " restarts are used");
    if (limits_.window)
      why = str_cat(why, " (--restart_window ", whole_seconds(*limits_.window), ")");
    return {.delay = {}, .why_not = std::move(why)};
  }
  restarts_.push_back(again);
  return {.delay = delay, .why_not = ""};
}

std::string RestartPolicy::attempt_text(int restarts) const {
  if (limits_.window) {
    return str_cat("attempt ", restarts + 1, " (at most ", limits_.most, " restarts within ",
                   whole_seconds(*limits_.window), ")");
  }
  return str_cat("attempt ", restarts + 1, " of ", limits_.most + 1);
}

}  // namespace fleet::launch
