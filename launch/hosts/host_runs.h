// What the launcher of one host does in a job that is decided on elsewhere: attempt after attempt
// of its part of the job, as it is told.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "launch/console.h"
#include "launch/hosts/messages.h"
#include "launch/process/event_loop.h"
#include "launch/restarts/attempt_parts.h"
#include "launch/run_listener.h"
#include "launch/supervisor.h"

namespace fleet::launch {

class HostRuns : private RunListener {
 public:
  // Makes what runs here in an attempt. Throws when it cannot.
  using Factory = std::function<std::unique_ptr<AttemptParts>(const AttemptId& attempt)>;
  using Tell = std::function<void(const Report&)>;

  // Loop and console outlive this. `workers` are those of this host.
  HostRuns(Factory make, int workers, const SupervisorOptions& supervision, Tell tell,
           EventLoop& loop, Console& console);

  // Returns when the job is over: the exit code that it was told, else kExitFailed.
  int run();

  // The following are called on the loop's thread, not from within `tell`.
  void obey(const Order& order);
  // Nothing runs here, or is about to.
  bool idle() const { return idle_ && !next_; }
  // Since the last order, or the connection.
  Duration silence() const { return loop_.now() - heard_; }
  bool connected() const { return connected_; }
  // There is somebody to tell and to obey.
  void on_connected();
  // Nobody decides any more: what runs here ends, and so does run() unless somebody may come again.
  void on_disconnected(const std::string& why, bool may_come_again);

 private:
  void on_line(Role role, int index, std::string_view line) override;
  void on_worker_done() override;
  void on_failure(const RunFailure& failure) override;
  void on_signal(int signal) override;

  Report carry_out(const AttemptId& attempt);
  // Null when it was told to end meanwhile.
  std::unique_ptr<AttemptParts> make_parts(const AttemptId& attempt);
  // Runs the loop until wake(), for at most this long.
  void await_orders(std::optional<Duration> limit);
  void wake();
  void tell_ready();
  void drop_next();
  void leave(int code);

  Factory make_;
  int workers_;
  SupervisorOptions supervision_;
  Tell tell_;
  EventLoop& loop_;
  Console& console_;
  std::optional<Order> next_;  // to begin
  bool idle_ = true;
  bool waits_ = false;        // in await_orders()
  bool told_to_end_ = false;  // what it was last told to begin
  bool connected_ = false;
  TimePoint heard_{};
  bool is_new_line_ = false;          // connected, and has not yet told that this host is ready
  Supervisor* supervisor_ = nullptr;  // while one runs
  std::optional<int> code_;
};

}  // namespace fleet::launch
