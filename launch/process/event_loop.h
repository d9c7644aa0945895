// The loop of the launchers and of the agent: file descriptors, timers and signals in one poll().
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <signal.h>
#include <utility>

#include "base/clock.h"

namespace fleet::launch {

// Single-threaded; every member is called on the thread that runs it. Signals given to
// handle_signals() are blocked for the thread and arrive through a signalfd, so handlers are
// ordinary functions; the former mask is restored at the end.
class EventLoop {
 public:
  using Handler = std::function<void()>;
  using Timer = std::pair<TimePoint, uint64_t>;

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void handle_signals(std::initializer_list<int> signals, std::function<void(int)> handler);
  // Those that a launcher looks at: SIGCHLD, SIGINT, SIGTERM, and SIGHUP unless it is ignored, as
  // under nohup. Threads that are begun later leave them to the loop.
  void handle_launcher_signals(std::function<void(int)> handler);
  // Calls `readable` whenever the descriptor is readable or hung up. The caller owns it and
  // unwatches it before closing it.
  void watch(int fd, Handler readable);
  // The same whenever it is writable. A descriptor is watched for one of the two.
  void watch_writable(int fd, Handler writable);
  void unwatch(int fd);

  TimePoint now() const { return steady_clock().now(); }
  Timer call_after(Duration delay, Handler handler);
  void cancel(const Timer& timer);

  // Runs handlers until stop(). May be called again.
  void run();
  // Waits at most `limit` for something to happen and handles it.
  void run_once(Duration limit);
  void stop() { stopped_ = true; }

 private:
  void read_signals();
  void run_due_timers();

  bool stopped_ = false;
  int signal_fd_ = -1;
  sigset_t former_mask_;
  std::function<void(int)> on_signal_;
  struct Watched {
    short events = 0;
    Handler handler;
  };
  std::map<int, Watched> watched_;
  std::map<Timer, Handler> timers_;
  uint64_t next_timer_ = 0;
};

}  // namespace fleet::launch
