#include "base/post_queue.h"

#include <utility>

namespace fleet {

PostQueue::PostQueue(Loop& loop) : loop_(loop) {}

void PostQueue::post(Loop::Handler call) {
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
