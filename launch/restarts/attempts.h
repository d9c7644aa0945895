// A job from its first attempt to its last: what a launcher with --max_restarts does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launch/console.h"
#include "launch/process/event_loop.h"
#include "launch/restarts/attempt_parts.h"
#include "launch/restarts/job_restarts.h"
#include "launch/supervisor.h"

namespace fleet::launch {

class Attempts {
 public:
  // Makes the attempt that so many restarts came before; `log_heading` is its Job::log_heading.
  using Factory =
      std::function<std::unique_ptr<AttemptParts>(int restarts, const std::string& log_heading)>;

  // Loop and console outlive this.
  Attempts(Factory make, const RestartLimits& limits, const SupervisorOptions& supervision,
           EventLoop& loop, Console& console);

  // Returns the launcher's exit code. Throws when an attempt cannot be made or started.
  int run();

 private:
  // The exit code when the job is over, or nothing: the next attempt is to begin.
  std::optional<int> run_one();
  std::optional<int> after_failure(Supervisor& supervisor, const RunEnd& end);

  Factory make_;
  bool may_restart_;
  JobRestarts restarts_;
  SupervisorOptions supervision_;
  EventLoop& loop_;
  Console& console_;
  std::string log_heading_;
};

}  // namespace fleet::launch
