// Threads for updates that would keep the thread of a data loop too long.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace fleet::strategies {

// Runs `work`; what it throws, whatever that is, as a status.
Status outcome_of(const std::function<void()>& work);

class UpdatePool {
 public:
  explicit UpdatePool(unsigned threads);
  // Waits for what runs; what has not begun is dropped.
  ~UpdatePool();
  UpdatePool(const UpdatePool&) = delete;
  UpdatePool& operator=(const UpdatePool&) = delete;

  // Any thread. The work must not throw (outcome_of).
  void run(std::function<void()> work);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace fleet::strategies
