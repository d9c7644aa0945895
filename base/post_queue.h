// Calls that several threads hand to a loop, in one order.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace fleet {

// A Loop keeps the order of what one thread posts; this keeps the order of everybody's.
class PostQueue {
 public:
  // The loop must outlive the calls.
  explicit PostQueue(Loop& loop) : loop_(loop) {}

  // Any thread: `call` runs on the loop's thread, after those that were posted before it.
  void post(Loop::Handler call);

 private:
  struct Waiting {
    std::mutex mutex;
    std::vector<Loop::Handler> calls;
  };
  Loop& loop_;
  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
};

inline void PostQueue::post(Loop::Handler call) {
  {
    const std::lock_guard lock(waiting_->mutex);
    waiting_->calls.push_back(std::move(call));
    if (waiting_->calls.size() > 1) return;  // there is a turn to come for all of them
  }
  loop_.post([waiting = waiting_] {
    std::vector<Loop::Handler> calls;
    {
      const std::lock_guard lock(waiting->mutex);
      calls.swap(waiting->calls);
    }
    for (const Loop::Handler& next : calls) next();
  });
}

}  // namespace fleet
