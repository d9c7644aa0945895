// The Loop of real processes: one Boost.Asio io_context, one epoll set.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/log.h"
#include "transport/link/link.h"

namespace fleet::transport {

// post() and stop() may be called from any thread; everything else by the one thread that drives
// the loop at the time. After stop() handlers are dropped where they are handed over. Driving may
// pass from thread to thread, when neither runs handlers then.
class AsioLoop final : public DrivenLoop {
 public:
  // `yields`: how many times run_until() offers its core to others and looks again before it
  // sleeps. An answer that other processes of the machine give meanwhile costs no sleep and no
  // wake-up.
  explicit AsioLoop(int yields = 0);
  ~AsioLoop() override;
  AsioLoop(const AsioLoop&) = delete;
  AsioLoop& operator=(const AsioLoop&) = delete;

  TimePoint now() const override;
  void post(Handler handler) override;
  TimerId call_at(TimePoint when, Handler handler) override;
  void cancel(TimerId timer) override;
  bool run_until(const std::function<bool()>& done, TimePoint deadline) override;
  void poll() override;

  void run();   // until stop()
  void stop();  // for good

  class Impl;
  Impl& impl() { return *impl_; }  // for the Asio links of this folder

 private:
  std::unique_ptr<Impl> impl_;
};

// Gets what a handler of a loop threw; may be empty.
using OnException = std::function<void(const Status& what)>;
// Inside a catch block: hands what was caught over, and logs it. Throws nothing.
void tell_exception(const OnException& on_exception, const Logger& logger);

// A loop with a thread of its own, stopped and joined by the destructor. What lives on the loop
// must be destroyed on it, or after the thread has ended. What a handler throws is logged, and the
// loop goes on.
class LoopThread {
 public:
  // `on_exception` gets what a handler threw, on the loop's thread. Handlers run from now on, or,
  // when `waits` is set, from start() on.
  explicit LoopThread(std::string name, Logger logger = {}, OnException on_exception = {},
                      bool waits = false);
  ~LoopThread();
  void start();
  AsioLoop& loop() { return loop_; }
  // Runs on the loop's thread and returns when it is done; what it throws is thrown here. After
  // stop_and_join() it runs on the calling thread.
  void run_there(const std::function<void()>& work);
  void stop_and_join();

 private:
  bool run_guarded();

  const std::string name_;
  Logger logger_;
  OnException on_exception_;
  AsioLoop loop_;
  std::thread thread_;
};

}  // namespace fleet::transport
