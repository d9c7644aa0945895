// What a supervisor tells of its run where the run is a part of a job over several hosts, and the
// decisions are made for all of them.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "launch/job.h"

namespace fleet::launch {

struct RunFailure {
  TimePoint when;         // the first process failed
  std::string reason;     // "worker 1 was killed by SIGKILL"
  bool sure = false;      // a process failed by itself, and not for want of others
  std::string why_final;  // why another run would fail in the same way, if that is known
};

// Called on the loop's thread; must not call the supervisor from within.
class RunListener {
 public:
  virtual ~RunListener() = default;
  // A line that a process wrote for progress.
  virtual void on_line(Role role, int index, std::string_view line) = 0;
  // A worker has ended well.
  virtual void on_worker_done() = 0;
  // The run ends because of a failure here.
  virtual void on_failure(const RunFailure& failure) = 0;
  // The launcher's first signal. Nothing is done about it here.
  virtual void on_signal(int signal) = 0;
};

}  // namespace fleet::launch
