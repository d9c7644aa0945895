// Whether a job that has failed is started again, and when. No clock and no processes.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "base/clock.h"
#include "launch/restarts/attempt_history.h"

namespace fleet::launch {

struct RestartLimits {
  int most = 0;                    // --max_restarts
  std::optional<Duration> window;  // --restart_window; nothing: the whole job
};

struct RestartDecision {
  std::optional<Duration> delay;  // after which the next attempt begins; nothing: there is none
  std::string why_not;            // "all 3 restarts are used"
};

// The first restart is at once, and so is one after an attempt that got to a higher step than all
// before it; others wait 1, 2, 4 … 30 s. After three attempts in a row of which none got further
// the job is given up: it dies at the same place. Of a job that tells of no steps, such attempts
// are those that lived for less than 5 s.
class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartLimits& limits) : limits_(limits) {}

  // `attempt` has failed. To be called for each, in order.
  RestartDecision after(const Attempt& attempt);
  // "attempt 2 of 4", for the attempt with so many restarts before it.
  std::string attempt_text(int restarts) const;

 private:
  enum class Progress { kFurther, kUnknown, kNone };
  Progress progress_of(const Attempt& attempt);
  std::string same_place(const Attempt& attempt) const;
  Duration next_delay(Progress progress);

  RestartLimits limits_;
  std::optional<double> highest_;   // step of all attempts
  int without_progress_ = 0;        // attempts in a row
  Duration wait_{};                 // after the next attempt without progress
  std::deque<TimePoint> restarts_;  // those that count
};

}  // namespace fleet::launch
