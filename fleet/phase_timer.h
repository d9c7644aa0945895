// Where the time of training threads goes: a runtime around a runtime that looks at the clock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "strategies/strategy.h"

namespace fleet {

// Any thread; what a thread tells is counted as its own.
class PhaseTimer {
 public:
  enum class Phase : uint8_t { kComputing, kSending, kReceiving, kReducing, kBarrier };
  static constexpr size_t kPhases = 5;

  void step_begins(uint64_t step);
  // So many steps were over before this process began.
  void begin_at(uint64_t steps);
  // Counts the step when it was fed, which a startup program is not.
  void step_ends();
  void fed(int64_t rows);
  // The calling thread is in a phase other than computing from here to leave().
  void enter(Phase phase);
  void leave();
  // The calling thread trains no more.
  void thread_ends();

  // "step=12 samples=384 compute_s=1.2 send_s=0.1 …", over all threads, for progress lines; phases
  // that never were are left out.
  std::string progress() const;
  // "receiving at step 12 for 3.2 s", for each thread.
  std::vector<std::string> now() const;

 private:
  struct Thread {
    uint64_t step = 0;
    bool fed = false;    // the step that is under way
    bool begun = false;  // what comes before its first step is the start of the job
    Phase phase = Phase::kComputing;
    int64_t since_ns = 0;
  };
  using Spent = std::array<int64_t, kPhases>;

  Thread& own();
  void switch_to(Thread& thread, Phase phase);

  mutable std::mutex mutex_;  // guards what follows
  std::map<std::thread::id, Thread> threads_;
  uint64_t steps_ = 0;
  int64_t samples_ = 0;
  Spent spent_ns_{};
};

// The runtime, with its calls told to the timer. `collective`: what it waits for at the end of a
// step is a reduction, not values from servers.
std::shared_ptr<strategies::StrategyRuntime> timed(
    std::shared_ptr<strategies::StrategyRuntime> runtime, std::shared_ptr<PhaseTimer> timer,
    bool collective);

}  // namespace fleet
