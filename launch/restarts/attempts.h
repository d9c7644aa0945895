// A job from its first attempt to its last: what a launcher with --max_restarts does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/net/port_reservation.h"
#include "launch/console.h"
#include "launch/death_notice.h"
#include "launch/host.h"
#include "launch/job.h"
#include "launch/process/event_loop.h"
#include "launch/process/run_folder.h"
#include "launch/restarts/attempt_history.h"
#include "launch/restarts/restart_policy.h"
#include "launch/supervisor.h"

namespace fleet::launch {

// What one attempt runs with. Nothing of it is used again, so that nothing that an attempt has left
// under way can count in the next one.
struct AttemptParts {
  RunFolder folder;
  PortReservation ports;
  Job job;
  std::unique_ptr<Host> host;
  std::unique_ptr<DeathNotice> notice;  // only of a job with servers over several hosts
};

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
  void begin_next();

  Factory make_;
  RestartLimits limits_;
  SupervisorOptions supervision_;
  EventLoop& loop_;
  Console& console_;
  RestartPolicy policy_;
  AttemptHistory history_;
  std::string log_heading_;
};

}  // namespace fleet::launch
