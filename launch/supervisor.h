// Runs a job from its first process to its last: what the launchers do.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "launch/console.h"
#include "launch/host.h"
#include "launch/job.h"
#include "launch/log_file.h"
#include "launch/process/event_loop.h"
#include "launch/progress_board.h"
#include "launch/progress_display.h"
#include "launch/restarts/attempt_history.h"
#include "launch/run_listener.h"
#include "launch/verdict.h"

namespace fleet::launch {

struct SupervisorOptions : ProgressForms {
  bool tee = false;
  // Between the first failure and the end of the others: what they write in it names the cause.
  Duration message_time = std::chrono::milliseconds(500);
  // Between SIGTERM and SIGKILL.
  Duration term_grace = std::chrono::seconds(2);
  // For workers that save when they are told to end, after SIGTERM.
  Duration save_grace = std::chrono::seconds(60);
  // For servers to end by themselves after every worker has ended well.
  Duration server_grace = std::chrono::seconds(5);
  // Workers elsewhere may still need them: server_grace does not count.
  bool servers_end_themselves = false;
  // The end of stdin ends the job, as SIGTERM does.
  bool ends_with_stdin = false;
  // A worker that takes part in the job and ends without stop_worker has failed, with code 0 too.
  bool workers_take_leave = false;
  // For a process that is stopped.
  Duration heartbeat_timeout = std::chrono::seconds(10);
  // Called for each process of the job that does not end well, whoever ended it; `how` completes
  // "worker 1 …". May be empty.
  std::function<void(Role role, int index, const std::string& how)> on_death;
  // The attempts of a job that may be started again; this run is the last of them. May be null.
  const AttemptHistory* history = nullptr;
  // Set: the run is a part of a job over several hosts. May be null.
  RunListener* listener = nullptr;
};

// Exit codes of a launcher.
constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// Why a job that ended with kExitUsage is not started again.
std::string misuse_text();

// How a run of a job ended.
struct RunEnd {
  bool failed = false;
  bool saved = false;      // workers, here or on other hosts, were told to end, and have saved
  int interrupted_by = 0;  // the signal that ended it, or came while it ended
  // Of a failure: when the first process failed, the cause in a line, and why another run would
  // fail in the same way, if that is known.
  TimePoint failed_at{};
  std::string reason;
  std::string why_final;
  StepsSeen steps;

  // The launcher's exit code: 0, 1 after a failure, kExitRequeue when the job has saved, 128 +
  // signal when one ended it (130 for Ctrl-C).
  int code() const;
};

// A job ends when every worker has ended well (servers then get server_grace, and are ended), when
// any process fails, or at SIGINT, SIGTERM or SIGHUP (a second one kills at once). However it ends,
// and even when the launcher is killed, no process of it remains: the launcher is the subreaper of
// its descendants, its children die with it, and a guard process ends the rest.
class Supervisor : private HostListener {
 public:
  // The job outlives the supervisor; the loop belongs to the thread that calls run().
  Supervisor(const Job& job, const SupervisorOptions& options, EventLoop& loop, Console& console);
  ~Supervisor() override;

  // Throws when the job cannot be started; nothing runs on then. To be called once.
  RunEnd run(Host& host);
  // While it runs: the job ends for a reason on another host, "worker 1 was killed by SIGKILL".
  void end(const std::string& reason);
  // While it runs: as SIGTERM does. Workers that make checkpoints save; servers stay meanwhile,
  // and so they do on a host without workers.
  void save();
  // After run(): lets the time pass, and shows progress meanwhile. Returns the signal that ended
  // it, or 0.
  int wait(Duration delay);
  // After run(): the job's table and result, where they are wanted.
  void show_end();

 private:
  enum class State { kRunning, kSaving, kFinishing, kAwaitingMessages, kEnding, kKilling, kOver };

  void on_started(size_t index, pid_t pid) override;
  void on_ended(size_t index, const Ending& ending) override;
  void on_stopped(size_t index, bool stopped) override;
  void on_stuck(size_t index, const std::string& reason) override;
  void on_asked(size_t index) override;
  void on_progress(size_t index, std::string_view line) override;

  void start_guard();
  void stop_guard();
  void on_signal(int signal);
  void interrupt(int signal);
  void watch_stdin();
  void reap();
  void on_guard_lost(const siginfo_t& info);
  void await_messages();
  void begin_end();
  void kill_now();
  void finish_workers();
  void stop_when_all_ended();
  void announce_failure();
  std::string nonfinite_text() const;
  void open_logs();
  void sweep();
  void tell_result();
  bool is_ending() const { return state_ >= State::kEnding; }
  int running() const;
  bool workers_done() const;
  bool workers_saved() const;
  bool workers_run() const;
  bool has_workers() const;
  bool has_saved_part() const;
  void let_workers_save();
  void after_saving(size_t index);
  void set_timer(Duration delay, EventLoop::Handler handler);

  const Job& job_;
  SupervisorOptions options_;
  EventLoop& loop_;
  Console& console_;
  Host* host_ = nullptr;
  State state_ = State::kRunning;
  std::vector<ProcessRecord> records_;
  std::vector<size_t> failed_;  // in the order in which it was seen
  std::string trouble_;         // a failure that is no process's
  TimePoint failed_at_{};
  std::string reason_;  // the cause, once it is announced
  std::string why_final_;
  int interrupted_by_ = 0;
  bool told_listener_ = false;  // of a signal
  bool ended_elsewhere_ = false;
  bool save_time_over_ = false;
  std::optional<EventLoop::Timer> state_timer_;
  std::map<size_t, EventLoop::Timer> stop_timers_;  // of the records that are stopped
  ProgressBoard board_;
  ProgressDisplay display_;
  std::unique_ptr<LogFollower> follower_;
  pid_t guard_ = 0;
  FileDescriptor guard_line_;
};

}  // namespace fleet::launch
