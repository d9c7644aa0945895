// Signals that a process counts instead of ending at them.
#pragma once

#include <cstdint>

namespace fleet {

// While one lives, the process counts this signal. A handler of somebody else's stays, and nothing
// is counted then.
class SignalCount {
 public:
  explicit SignalCount(int signal);
  ~SignalCount();
  SignalCount(const SignalCount&) = delete;
  SignalCount& operator=(const SignalCount&) = delete;

  // Since this was made. Any thread.
  uint64_t count() const;

 private:
  int signal_;
  uint64_t before_;
};

}  // namespace fleet
