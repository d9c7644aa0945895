// A thread that answers people while the process works: it dumps every wait when SIGUSR1 comes,
// and writes progress lines for the launcher (FLEET_PROGRESS_FD).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"

namespace fleet {

struct AttendantOptions {
  // Written to once a second, and at the end; below 0: nobody wants progress.
  int progress_fd = -1;
  // "key=value …" of the progress line. Runs on the attendant's thread.
  std::function<std::string()> progress;
  // The line that tells of a stall, written behind the progress; empty: there is none.
  std::function<std::string()> stall;
  // What the process waits for, one line each. Runs on the attendant's thread.
  std::function<std::vector<std::string>()> waits;
  Logger logger;
};

// SIGUSR1 goes to the newest attendant of the process. Its handler is installed by the first, if
// nobody else has one, and stays: without an attendant it does nothing.
class Attendant {
 public:
  explicit Attendant(AttendantOptions options);
  // Writes the last progress line.
  ~Attendant();
  Attendant(const Attendant&) = delete;
  Attendant& operator=(const Attendant&) = delete;

  // Writes a progress line now. Any thread.
  void write_progress() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fleet
