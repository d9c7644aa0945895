// Calls that several threads hand to a loop, in one order.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace fleet {

// A Loop keeps the order of what one thread posts; this keeps the order of everybody's.
class PostQueue {
 public:
  // The loop must outlive the calls.
  explicit PostQueue(Loop& loop);

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

}  // namespace fleet
