#include "transport/link/asio_loop.h"

#include <boost/asio/post.hpp>
#include <future>
#include <pthread.h>
#include <sched.h>

#include "base/caught.h"
#include "transport/link/asio_loop_impl.h"

namespace fleet::transport {

AsioLoop::Impl::Impl(int yields)
    : guard_(boost::asio::make_work_guard(context_)), timer_(context_), yields_(yields) {}

Loop::TimerId AsioLoop::Impl::call_at(TimePoint when, Handler handler) {
  const TimerId id = next_timer_++;
  timers_.emplace(Key{when, id}, std::move(handler));
  when_.emplace(id, when);
  arm();
  return id;
}

void AsioLoop::Impl::cancel(TimerId timer) {
  const auto found = when_.find(timer);
  if (found == when_.end()) return;
  timers_.erase(Key{found->second, timer});
  when_.erase(found);
  // An earlier wake-up than needed does no harm, so the timer stays as it is armed.
}

void AsioLoop::Impl::arm() {
  if (timers_.empty() || timers_.begin()->first.first >= armed_for_) return;
  armed_for_ = timers_.begin()->first.first;
  timer_.expires_at(armed_for_);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) fire();
  });
}

void AsioLoop::Impl::fire() {
  armed_for_ = TimePoint::max();
  const TimePoint now = std::chrono::steady_clock::now();
  // A handler that adds a timer for now does not keep the others waiting: ids grow.
  const TimerId limit = next_timer_;
  while (!timers_.empty()) {
    const auto first = timers_.begin();
    if (first->first.first > now || first->first.second >= limit) break;
    const Handler handler = std::move(first->second);
    when_.erase(first->first.second);
    timers_.erase(first);
    handler();
  }
  arm();
}

// Runs one handler.
void AsioLoop::Impl::run_one() {
  for (int i = 0; i < yields_; ++i) {
    if (context_.poll_one() != 0 || context_.stopped()) return;
    sched_yield();
  }
  context_.run_one();
}

bool AsioLoop::Impl::run_until(const std::function<bool()>& done, TimePoint deadline) {
  if (done()) return true;
  // Waiting for ever needs no timer of its own.
  std::optional<TimerId> alarm;
  if (deadline != TimePoint::max()) alarm = call_at(deadline, [] {});
  bool finished = false;
  while (!context_.stopped()) {
    run_one();
    if (done()) {
      finished = true;
      break;
    }
    if (alarm && std::chrono::steady_clock::now() >= deadline) break;
  }
  if (alarm) cancel(*alarm);
  return finished;
}

AsioLoop::AsioLoop(int yields) : impl_(std::make_unique<Impl>(yields)) {}
AsioLoop::~AsioLoop() = default;

TimePoint AsioLoop::now() const {
  return std::chrono::steady_clock::now();
}

void AsioLoop::post(Handler handler) {
  // Dropped, so that whoever waits for it learns that it will not run.
  if (impl_->context().stopped()) return;
  boost::asio::post(impl_->context(), std::move(handler));
}

Loop::TimerId AsioLoop::call_at(TimePoint when, Handler handler) {
  return impl_->call_at(when, std::move(handler));
}

void AsioLoop::cancel(TimerId timer) {
  impl_->cancel(timer);
}

bool AsioLoop::run_until(const std::function<bool()>& done, TimePoint deadline) {
  return impl_->run_until(done, deadline);
}

void AsioLoop::run() {
  impl_->context().run();
}
void AsioLoop::stop() {
  impl_->context().stop();
}
void AsioLoop::poll() {
  impl_->context().poll();
}

void tell_exception(const OnException& on_exception, const Logger& logger) {
  try {
    const Status what = caught_status("handler of a loop");
    if (on_exception) on_exception(what);
    logger.error("transport", "a handler of a loop threw", {{"what", what.text().what}});
  } catch (...) {  // there is not even the memory to say so
  }
}

LoopThread::LoopThread(std::string name, Logger logger, OnException on_exception, bool waits)
    : name_(std::move(name)), logger_(std::move(logger)), on_exception_(std::move(on_exception)) {
  if (!waits) start();
}

void LoopThread::start() {
  thread_ = std::thread([this] {
    for (bool again = true; again;) again = run_guarded();
  });
  pthread_setname_np(thread_.native_handle(), name_.substr(0, 15).c_str());
}

// True when a handler threw and the loop must go on.
bool LoopThread::run_guarded() {
  try {
    loop_.run();
    return false;
  } catch (...) {
    tell_exception(on_exception_, logger_);
    return true;
  }
}

LoopThread::~LoopThread() {
  stop_and_join();
}

void LoopThread::run_there(const std::function<void()>& work) {
  if (!thread_.joinable()) return work();
  std::packaged_task<void()> task(work);
  auto result = task.get_future();
  loop_.post([&task] { task(); });
  result.get();
}

void LoopThread::stop_and_join() {
  loop_.stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace fleet::transport
