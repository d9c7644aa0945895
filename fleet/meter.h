// Where the time of a training thread goes: a runtime around a runtime that looks at the clock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "strategies/strategy.h"

namespace fleet {

// Written by the thread that trains, read by any.
class Meter {
 public:
  enum class Phase : uint8_t { kComputing, kSending, kReceiving, kReducing, kBarrier };
  static constexpr size_t kPhases = 5;

  void step_begins(uint64_t step);
  // Counts the step when it was fed, which a startup program is not.
  void step_ends();
  void fed(int64_t rows);
  // The thread is in a phase other than computing from here to leave().
  void enter(Phase phase);
  void leave();

  // "step=12 samples=384 compute_s=1.2 send_s=0.1 …", for progress lines; phases that never were
  // are left out.
  std::string progress() const;
  // "receiving at step 12 for 3.2 s".
  std::string now() const;

 private:
  std::atomic<uint64_t> step_{0};
  std::atomic<uint64_t> steps_{0};
  std::atomic<int64_t> samples_{0};
  bool fed_ = false;                  // of the thread that trains
  std::atomic<int64_t> begun_ns_{0};  // when the first step began
  std::atomic<Phase> phase_{Phase::kComputing};
  std::atomic<int64_t> since_ns_{0};
  std::array<std::atomic<int64_t>, kPhases> spent_ns_{};
};

// The runtime, with its calls told to the meter. `collective`: what it waits for at the end of a
// step is a reduction, not values from servers.
std::shared_ptr<strategies::StrategyRuntime> metered(
    std::shared_ptr<strategies::StrategyRuntime> runtime, std::shared_ptr<Meter> meter,
    bool collective);

}  // namespace fleet
