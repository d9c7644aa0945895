#include "fluid/executor/shards/shard_threads_impl.h"

namespace fleet::fluid {

ShardThreads::ShardThreads(int others) {
  errors_.resize(static_cast<size_t>(others) + 1);
  for (int lane = 1; lane <= others; ++lane) {
    threads_.emplace_back([this, lane] { serve(lane); });
  }
}

ShardThreads::~ShardThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ShardThreads::run(const std::function<void(int)>& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    busy_ = static_cast<int>(threads_.size());
    ++round_;
  }
  changed_.notify_all();
  work_on(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return busy_ == 0; });
  for (const std::exception_ptr& error : errors_) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

void ShardThreads::work_on(int lane) {
  std::exception_ptr& error = errors_[static_cast<size_t>(lane)];
  error = nullptr;
  try {
    (*work_)(lane);
  } catch (...) {
    error = std::current_exception();
  }
}

void ShardThreads::serve(int lane) {
  std::unique_lock lock(mutex_);
  for (uint64_t seen = 0;;) {
    changed_.wait(lock, [&] { return stopped_ || round_ != seen; });
    if (stopped_) return;
    seen = round_;
    lock.unlock();
    work_on(lane);
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
  }
}

}  // namespace fleet::fluid
