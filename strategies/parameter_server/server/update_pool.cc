#include "strategies/parameter_server/server/update_pool.h"

#include <pthread.h>
#include <utility>

#include "base/caught.h"

namespace fleet::strategies {
Status outcome_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (...) {
    return caught_status("parameter server");
  }
}

UpdatePool::UpdatePool(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { serve(); });
    pthread_setname_np(threads_.back().native_handle(), "update");
  }
}

UpdatePool::~UpdatePool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void UpdatePool::run(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void UpdatePool::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ending_ || !work_.empty(); });
    if (ending_) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
}

}  // namespace fleet::strategies
