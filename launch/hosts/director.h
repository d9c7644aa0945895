// Decides for a job over several hosts: when an attempt begins on all of them, when it ends
// everywhere, whether there is another, and the exit code.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/console.h"
#include "launch/hosts/messages.h"
#include "launch/process/event_loop.h"
#include "launch/progress_board.h"
#include "launch/progress_display.h"
#include "launch/restarts/job_restarts.h"
#include "launch/supervisor.h"

namespace fleet::launch {

// The ways to the launchers of the hosts, by their positions. Orders arrive later, not within the
// call.
class HostLines {
 public:
  virtual ~HostLines() = default;
  virtual void send(size_t host, const Order& order) = 0;
  // Ends the way to a host that does not answer; Director::on_lost follows.
  virtual void drop(size_t host) = 0;
  // The job is over, and every host that is there has been told.
  virtual void on_over(int exit_code) = 0;
};

struct DirectorOptions {
  std::vector<std::string> hosts;  // "host 10.0.0.1", "node 1"
  int servers = 0;                 // of the whole job
  RestartLimits restarts;
  SupervisorOptions supervision;
  // The launchers of the hosts are started from here: one that is lost before the first attempt is
  // a failure. Else it may come again.
  bool starts_launchers = false;
  // For all hosts to be there before the first attempt; and for one that was lost before the next.
  Duration first_wait = std::chrono::seconds(180);
  Duration host_wait = std::chrono::seconds(60);
  // Of the attempt after so many restarts; the director adds the heading.
  std::function<AttemptId(int restarts)> id_of;
};

class Director {
 public:
  // Loop, console and lines outlive this. Members are called on the loop's thread.
  Director(DirectorOptions options, HostLines& lines, EventLoop& loop, Console& console);
  ~Director();
  Director(const Director&) = delete;
  Director& operator=(const Director&) = delete;

  void on_report(size_t host, const Report& report);
  // The launcher of a host has ended, or cannot be reached: "ssh failed with exit code 255".
  // `why_final`: why it cannot come back, if that is known.
  void on_lost(size_t host, const std::string& why, const std::string& why_final = "");
  // The first ends the job: after SIGTERM workers that make checkpoints save before. A second one
  // does not wait for them, and a third one for nothing.
  void on_signal(int signal);

  // Whether a host that was lost may come back.
  bool waits_for(size_t host) const;

 private:
  enum class State { kGathering, kRunning, kEnding, kPausing, kOver };
  struct Host {
    std::string name;
    bool there = false;  // its launcher waits for orders, or runs something
    bool runs = false;
    int workers = 0;
    TimePoint heard{};
    std::string dropped;  // why its way was ended from here
    std::string lost;     // why, while it is not there
  };

  void begin_when_all_are_there();
  void begin();
  void on_failure(const RunFailure& failure);
  void on_ended(Host& host, const Report& report);
  void end_everywhere(const std::string& reason);
  void send_to_running(const Order& order);
  void settle();
  void decide();
  void give_up_waiting();
  void finish(int code);
  void show_end(int code);
  void ping();
  void drop(size_t host, const std::string& why);
  void set_timer(Duration delay, EventLoop::Handler handler);

  DirectorOptions options_;
  HostLines& lines_;
  EventLoop& loop_;
  Console& console_;
  JobRestarts restarts_;
  State state_ = State::kGathering;
  std::vector<Host> hosts_;
  std::string log_heading_;
  std::unique_ptr<ProgressBoard> board_;  // of the attempt that runs, or ran last
  std::unique_ptr<ProgressDisplay> display_;
  std::optional<RunFailure> failure_;  // of the attempt
  bool saves_ = false;                 // workers say that they do when they are told to end
  bool saved_ = false;
  int ended_by_signal_ = 0;  // workers were, and have not saved
  int interrupted_by_ = 0;
  int signals_ = 0;
  std::optional<EventLoop::Timer> timer_;
  EventLoop::Timer ping_timer_;
};

}  // namespace fleet::launch
