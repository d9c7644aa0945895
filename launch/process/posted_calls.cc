#include "launch/process/posted_calls.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "base/error.h"

namespace fleet::launch {

PostedCalls::PostedCalls(EventLoop& loop)
    : loop_(loop), event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) {
    throw_error(ErrorCode::kInput, {.what = "cannot make an eventfd",
                                    .where = "the launcher",
                                    .expected = "free file descriptors",
                                    .got = "",
                                    .fix = "raise the limit (ulimit -n)"});
  }
  loop_.watch(event_.get(), [this] { run_all(); });
}

PostedCalls::~PostedCalls() {
  loop_.unwatch(event_.get());
}

void PostedCalls::post(EventLoop::Handler call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
}

void PostedCalls::run_all() {
  uint64_t ignored = 0;
  [[maybe_unused]] const auto count = ::read(event_.get(), &ignored, sizeof ignored);
  std::deque<EventLoop::Handler> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const EventLoop::Handler& call : calls) call();
}

}  // namespace fleet::launch
