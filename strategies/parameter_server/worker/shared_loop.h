// A loop for requests of threads that compute in between: a thread of its own drives it, but
// threads that come often drive it themselves, so that no hand-over between threads lies on their
// path.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "strategies/parameter_server/worker/worker_loops.h"
#include "transport/link/asio_loop.h"

namespace fleet::strategies {

// Any thread may call everything, but construct, end and destroy from one. Handlers run on one
// thread at a time, whichever drives. What a handler throws is told to `on_exception` on the thread
// that drives, and logged, and the loop goes on. What lives on the loop is destroyed by on_loop(),
// or after end().
class SharedLoop final : public RequestLoop {
 public:
  explicit SharedLoop(const std::string& name, Logger logger = {});
  ~SharedLoop() override;
  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;

  transport::AsioLoop& loop() override { return loop_; }
  void set_on_exception(transport::OnException on_exception) override;

  // Its own thread gives way to one that comes again within kPatience: its next call finds the loop
  // free.
  bool try_run(const std::function<void()>& work) override;
  bool try_drive_until(const std::function<bool()>& done) override;
  void on_loop(const std::function<void()>& work) override;
  // Stops the loop and ends its thread.
  void end();

  // How long the loop may be without a driver while threads come and go: until its own thread
  // takes it again.
  static constexpr Duration kPatience = std::chrono::milliseconds(2);

 private:
  class Turn;

  bool try_take();
  void give_back();
  void serve();
  void guarded(const std::function<void()>& drive);

  Logger logger_;
  transport::OnException on_exception_;
  transport::AsioLoop loop_;
  std::atomic<bool> asked_{false};  // the loop's own thread is to give way
  std::atomic<bool> ended_{false};
  std::mutex mutex_;  // guards what follows
  std::condition_variable ending_;
  bool taken_ = false;
  TimePoint last_use_{};
  TimePoint last_call_{};
  std::thread thread_;
};

}  // namespace fleet::strategies
