// A thread that answers people while the process works: it dumps every wait when SIGUSR1 comes,
// and writes progress lines for the launcher (FLEET_PROGRESS_FD).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"

namespace fleet {

struct StatusReporterOptions {
  // Written to once a second, and at the end; below 0: nobody wants progress.
  int progress_fd = -1;
  // "key=value …" of the progress line. Runs on the status_reporter's thread.
  std::function<std::string()> progress;
  // The line that tells of a stall, written behind the progress; empty: there is none.
  std::function<std::string()> stall;
  // What the process waits for, one line each. Runs on the status_reporter's thread.
  std::function<std::vector<std::string>()> waits;
  Logger logger;
};

// SIGUSR1 goes to the newest status_reporter of the process. Its handler is installed by the first,
// if nobody else has one, and stays: without an status_reporter it does nothing.
class StatusReporter {
 public:
  explicit StatusReporter(StatusReporterOptions options);
  // Writes the last progress line.
  ~StatusReporter();
  StatusReporter(const StatusReporter&) = delete;
  StatusReporter& operator=(const StatusReporter&) = delete;

  // Writes a progress line now. Any thread.
  void write_progress() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fleet
