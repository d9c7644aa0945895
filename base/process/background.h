// Work beside the thread that asks for it: a thread in real processes, something else under virtual
// time.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"

namespace fleet {

// One piece of work at a time. Used by one thread, but for rest().
class Background {
 public:
  // stop() and finish().
  virtual ~Background() = default;
  // Waits for the work before. `work` must not throw.
  virtual void start(std::function<void()> work) = 0;
  // Waits until the work is over, where there is any.
  virtual void finish() = 0;
  // The work is to end soon; for good.
  virtual void stop() = 0;
  // Called by the work: lets so much time go by. False, at once, when it is to end.
  virtual bool rest(Duration time) = 0;
};

std::unique_ptr<Background> make_background_thread();

}  // namespace fleet
