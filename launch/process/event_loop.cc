#include "launch/process/event_loop.h"

#include <algorithm>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>
#include <vector>

namespace fleet::launch {

EventLoop::EventLoop() {
  ::pthread_sigmask(SIG_SETMASK, nullptr, &former_mask_);
}

EventLoop::~EventLoop() {
  if (signal_fd_ < 0) return;
  ::close(signal_fd_);
  ::pthread_sigmask(SIG_SETMASK, &former_mask_, nullptr);
}

void EventLoop::handle_signals(std::initializer_list<int> signals,
                               std::function<void(int)> handler) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : signals) ::sigaddset(&set, signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = ::signalfd(signal_fd_, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  on_signal_ = std::move(handler);
  watch(signal_fd_, [this] { read_signals(); });
}

void EventLoop::handle_launcher_signals(std::function<void(int)> handler) {
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler == SIG_IGN) {
    handle_signals({SIGCHLD, SIGINT, SIGTERM}, std::move(handler));
  } else {
    handle_signals({SIGCHLD, SIGINT, SIGTERM, SIGHUP}, std::move(handler));
  }
}

void EventLoop::watch(int fd, Handler readable) {
  watched_.insert_or_assign(fd, Watched{POLLIN, std::move(readable)});
}

void EventLoop::watch_writable(int fd, Handler writable) {
  watched_.insert_or_assign(fd, Watched{POLLOUT, std::move(writable)});
}

void EventLoop::unwatch(int fd) {
  watched_.erase(fd);
}

EventLoop::Timer EventLoop::call_after(Duration delay, Handler handler) {
  const Timer timer(now() + delay, next_timer_++);
  timers_.emplace(timer, std::move(handler));
  return timer;
}

void EventLoop::cancel(const Timer& timer) {
  timers_.erase(timer);
}

void EventLoop::run() {
  stopped_ = false;
  while (!stopped_) run_once(std::chrono::hours(1));
}

void EventLoop::run_once(Duration limit) {
  using std::chrono::milliseconds;
  Duration wait = limit;
  if (!timers_.empty()) wait = std::min<Duration>(wait, timers_.begin()->first.first - now());
  const auto wait_ms = std::chrono::ceil<milliseconds>(std::max<Duration>(wait, Duration(0)));

  std::vector<pollfd> polled;
  polled.reserve(watched_.size());
  for (const auto& [fd, watched] : watched_) polled.push_back({fd, watched.events, 0});
  ::poll(polled.data(), polled.size(), static_cast<int>(wait_ms.count()));
  for (const pollfd& entry : polled) {
    if (entry.revents == 0) continue;
    const auto found = watched_.find(entry.fd);
    if (found == watched_.end()) continue;
    const Handler handler = found->second.handler;  // a handler may unwatch itself
    handler();
  }
  run_due_timers();
}

void EventLoop::read_signals() {
  signalfd_siginfo info;
  while (::read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    on_signal_(static_cast<int>(info.ssi_signo));
  }
}

void EventLoop::run_due_timers() {
  const TimePoint time = now();
  while (!timers_.empty() && timers_.begin()->first.first <= time) {
    const Handler handler = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    handler();
  }
}

}  // namespace fleet::launch
