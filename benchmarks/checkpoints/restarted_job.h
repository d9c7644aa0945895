// Kills a worker of a job that its launcher starts again, and times how long it takes until the job
// is further than it ever was.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/checkpoints/restart_trace.h"
#include "benchmarks/harness/process.h"

namespace fleet::benchmarks {

struct RestartableJob {
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value", besides this process's
  std::vector<std::string> traces;       // of its workers (restart_trace.h)
  // Holds the name "step-N" of the newest checkpoint, as soon as that can be loaded.
  std::string latest;
  std::string output;  // what the command prints goes there
};

// Seconds, each part behind the one before.
struct RestartTimes {
  double start = 0;   // from the kill until the last worker's program runs again
  double load = 0;    // until all know the step that they go on from
  double first = 0;   // until the first step is over
  double repeat = 0;  // until a step is that no attempt had done
  double total() const { return start + load + first + repeat; }
  int64_t repeated = 0;  // steps
  int attempts = 0;      // that it took; the times are of the last one
};

// The job runs as long as this does.
class RestartedJob {
 public:
  explicit RestartedJob(const RestartableJob& job);

  // Waits until all workers have done a step behind a new checkpoint, kills the last worker
  // (SIGKILL), and waits for the step of the first worker that nobody had done. Throws when the job
  // ends, or does not get there in time.
  RestartTimes kill_one();

 private:
  using Attempt = RestartTrace::Attempt;

  // As far as all workers have begun them.
  size_t attempts() const;
  // Steps that are over in the first so many attempts, by the furthest worker.
  int64_t highest_of(size_t attempts) const;
  int64_t newest_checkpoint() const;
  bool is_behind_checkpoint() const;
  template <class Reached>
  void wait_for(const char* what, const Reached& reached);

  const RestartableJob job_;
  std::vector<RestartTrace> traces_;
  int64_t used_ = 0;  // the checkpoint that was the newest at the last kill
  BackgroundProcess process_;
};

}  // namespace fleet::benchmarks
