#include "strategies/parameter_server/worker/shared_loop.h"

#include <algorithm>
#include <future>
#include <pthread.h>

namespace fleet::strategies {

// The loop, as long as this lives, where it was free.
class SharedLoop::Turn {
 public:
  explicit Turn(SharedLoop& loop) : loop_(loop), taken_(loop.try_take()) {}
  ~Turn() {
    if (taken_) loop_.give_back();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool taken() const { return taken_; }

 private:
  SharedLoop& loop_;
  const bool taken_;
};

SharedLoop::SharedLoop(const std::string& name, Logger logger) : logger_(std::move(logger)) {
  thread_ = std::thread([this] { serve(); });
  pthread_setname_np(thread_.native_handle(), name.substr(0, 15).c_str());
}

SharedLoop::~SharedLoop() {
  end();
}

void SharedLoop::set_on_exception(transport::OnException on_exception) {
  on_loop([&] { on_exception_ = std::move(on_exception); });
}

bool SharedLoop::try_take() {
  const TimePoint now = loop_.now();
  const std::lock_guard lock(mutex_);
  const bool often = now - last_call_ < kPatience;
  last_call_ = now;
  if (taken_) {
    if (often) asked_ = true;
    return false;
  }
  taken_ = true;
  return true;
}

void SharedLoop::give_back() {
  const TimePoint now = loop_.now();
  const std::lock_guard lock(mutex_);
  taken_ = false;
  last_use_ = now;
}

// Sleeps while others come often, so that none of them has to wake it.
void SharedLoop::serve() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const TimePoint now = loop_.now();
    if (taken_ || now - last_use_ < kPatience) {
      ending_.wait_until(lock, taken_ ? now + kPatience : last_use_ + kPatience);
      continue;
    }
    taken_ = true;
    asked_ = false;
    lock.unlock();
    guarded([this] {
      loop_.run_until([this] { return asked_.load() || ended_.load(); }, TimePoint::max());
    });
    lock.lock();
    taken_ = false;
    if (asked_) last_use_ = loop_.now();
  }
}

void SharedLoop::guarded(const std::function<void()>& drive) {
  try {
    drive();
  } catch (...) {
    transport::tell_exception(on_exception_, logger_);
  }
}

bool SharedLoop::try_run(const std::function<void()>& work) {
  const Turn turn(*this);
  if (!turn.taken()) return false;
  guarded([&] {
    loop_.poll();
    work();
  });
  return true;
}

bool SharedLoop::try_drive_until(const std::function<bool()>& done) {
  const Turn turn(*this);
  if (!turn.taken()) return false;
  bool finished = false;
  while (!finished && !ended_) {
    guarded([&] { finished = loop_.run_until(done, TimePoint::max()); });
  }
  return finished;
}

void SharedLoop::on_loop(const std::function<void()>& work) {
  if (ended_) return work();
  if (const Turn turn(*this); turn.taken()) return work();
  std::packaged_task<void()> task(work);
  auto result = task.get_future();
  loop_.post([&task] { task(); });
  result.get();
}

void SharedLoop::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ending_.notify_all();
  }
  loop_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace fleet::strategies
