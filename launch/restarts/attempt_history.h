// The attempts of a job that a launcher starts again when it has failed, and what restarts cost.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace fleet::launch {

// How far the workers of an attempt got, by the steps of their progress lines. Step 0 says that
// none is done.
struct StepsSeen {
  std::optional<double> first;
  std::optional<double> highest;  // of any worker
  TimePoint first_at{};

  void see(double step, TimePoint now);
};

// A whole run of the job's processes.
struct Attempt {
  TimePoint began;
  std::optional<TimePoint> failed;  // when its first process did; nothing while it runs
  std::string reason;               // "worker 1 was killed by SIGKILL"
  StepsSeen steps;
};

struct Restart {
  TimePoint failed;
  std::string reason;  // of the attempt before
  // From the failure to the first step that the new attempt tells of; until it does, to its own
  // failure or to now. In jobs that tell of no steps, to the start of the new attempt.
  Duration lost{};
  // Of the attempt before, those that are done again; unknown until both have told of steps.
  std::optional<double> steps_repeated;
};

class AttemptHistory {
 public:
  // The job begins, and its first attempt.
  explicit AttemptHistory(TimePoint now);

  TimePoint start() const { return attempts_.front().began; }
  int restarts() const { return static_cast<int>(attempts_.size()) - 1; }
  const Attempt& last() const { return attempts_.back(); }

  // The attempt that ran has failed.
  void fail(TimePoint when, std::string reason, const StepsSeen& steps);
  // The next one begins.
  void begin(TimePoint now);

  // Every restart, the first one first. `steps` are those of the attempt that runs.
  std::vector<Restart> list(const StepsSeen& steps, TimePoint now) const;

 private:
  std::vector<Attempt> attempts_;
};

// All of them together; without a reason.
Restart sum_of(const std::vector<Restart>& restarts);

}  // namespace fleet::launch
