#include "strategies/parameter_server/server/update_pool.h"

#include <exception>
#include <new>
#include <utility>

#include "base/error.h"

namespace fleet::strategies {
namespace {

Status failure(std::string what, std::string fix) {
  return {ErrorCode::kInternal,
          {.what = std::move(what),
           .where = "parameter server",
           .expected = {},
           .got = {},
           .fix = std::move(fix)}};
}

}  // namespace

Status outcome_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    return {error.code(), error.text()};
  } catch (const std::bad_alloc&) {
    return failure("the server has no memory left", "give it more, or use more servers");
  } catch (const std::exception& error) {
    return failure(error.what(), "mend what the message names");
  } catch (...) {
    return failure("an exception that is none of the standard's", "see the server's log");
  }
}

UpdatePool::UpdatePool(unsigned threads) {
  for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
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
