// Time, and the loop that runs handlers: the seam between protocol state machines and whatever
// drives them. transport/link/asio_loop.h drives real processes, transport/sim/sim_loop.h a whole
// cluster in one thread under virtual time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

namespace fleet {

using Duration = std::chrono::nanoseconds;
// Monotonic; the origin is the loop's own.
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

// The machine's monotonic clock.
Clock& steady_clock();

// A single-threaded executor of handlers and timers. Handlers never run inside the call that
// hands them over, never at the same time as another handler of the same loop, and must not
// block. post() may be called from any thread; the rest only on the loop's own thread.
class Loop : public Clock {
 public:
  using Handler = std::function<void()>;
  using TimerId = uint64_t;

  // The handler runs later, on the loop's thread. Where a loop lets several threads post, the
  // handlers of each run in its order; PostQueue keeps one order of all.
  virtual void post(Handler handler) = 0;
  virtual TimerId call_at(TimePoint when, Handler handler) = 0;
  // Does nothing when the timer has run or was cancelled before.
  virtual void cancel(TimerId timer) = 0;

  TimerId call_after(Duration delay, Handler handler) {
    return call_at(now() + delay, std::move(handler));
  }
};

}  // namespace fleet
