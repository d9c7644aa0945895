#include "launch/supervisor.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"
#include "launch/process/process_tree.h"

namespace fleet::launch {
namespace {

using std::chrono::seconds;

// The stopped process's peers miss its heartbeats a little later than the launcher hears of the
// stop, and can say in which phase and step it was.
constexpr Duration kTimeForPeers = seconds(1);
constexpr Duration kKillLimit = seconds(1);
// Longer than mpirun takes to end when a rank has left without MPI_Finalize.
constexpr Duration kCarrierGrace = seconds(10);

std::vector<ProcessRecord> records_of(const Job& job) {
  std::vector<ProcessRecord> records;
  for (const Member& member : job.members) {
    ProcessRecord record;
    record.title = member.title();
    record.log_file = member.log_file;
    record.role = member.role;
    record.index = member.index;
    records.push_back(std::move(record));
  }
  return records;
}

int count_role(const Job& job, Role role) {
  return static_cast<int>(std::count_if(job.members.begin(), job.members.end(),
                                        [&](const Member& m) { return m.role == role; }));
}

}  // namespace

Supervisor::Supervisor(const Job& job, const SupervisorOptions& options, EventLoop& loop,
                       Console& console)
    : job_(job),
      options_(options),
      loop_(loop),
      console_(console),
      records_(records_of(job)),
      board_(count_role(job, Role::kWorker), count_role(job, Role::kServer), loop.now(),
             options.history),
      display_(board_, options_, loop, console) {}

Supervisor::~Supervisor() {
  if (state_timer_) loop_.cancel(*state_timer_);
  for (const auto& [index, timer] : stop_timers_) loop_.cancel(timer);
  if (options_.ends_with_stdin) loop_.unwatch(STDIN_FILENO);
  stop_guard();
}

std::string misuse_text() {
  return str_cat("exit code ", kExitUsage, " says that the job is used wrongly");
}

int RunEnd::code() const {
  if (failed) return kExitFailed;
  if (saved) return kExitRequeue;
  return interrupted_by != 0 ? 128 + interrupted_by : kExitOk;
}

RunEnd Supervisor::run(Host& host) {
  host_ = &host;
  if (!host.carrier().empty()) {
    ProcessRecord carrier;
    carrier.title = host.carrier();
    carrier.log_file = host.carrier_log();
    records_.push_back(std::move(carrier));
  }
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  loop_.handle_launcher_signals([this](int signal) { on_signal(signal); });
  open_logs();
  if (options_.tee) {
    std::vector<off_t> begins;
    for (size_t i = 0; i < job_.members.size(); ++i) begins.push_back(records_[i].log_begin);
    follower_ = std::make_unique<LogFollower>(
        loop_, job_.members, begins,
        [this](const Member& member, std::string_view line) { console_.tee(member.title(), line); },
        [this] { return console_.behind(); });
  }
  if (options_.ends_with_stdin) watch_stdin();
  start_guard();
  try {
    host.start(*this);
  } catch (...) {
    sweep();
    throw;
  }
  display_.start();
  loop_.run();
  sweep();
  if (follower_) follower_->finish();
  host.finish_progress();
  console_.finish_progress();
  state_ = State::kOver;
  if (!board_.nonfinite().empty()) {
    why_final_ = "a value is not finite, and the same steps would give it again";
  }
  return {.failed = !failed_.empty() || !trouble_.empty(),
          .saved = has_saved_part(),
          .interrupted_by = interrupted_by_,
          .failed_at = failed_at_,
          .reason = reason_,
          .why_final = why_final_,
          .steps = board_.steps_seen()};
}

int Supervisor::wait(Duration delay) {
  set_timer(delay, [this] { loop_.stop(); });
  loop_.run();
  console_.finish_progress();
  return interrupted_by_;
}

void Supervisor::open_logs() {
  for (ProcessRecord& record : records_) {
    open_log(record.log_file, job_.log_heading.empty());
    if (!job_.log_heading.empty())
      record.log_begin = append_line(record.log_file, job_.log_heading);
  }
}

void Supervisor::start_guard() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw_error(ErrorCode::kInput, {.what = "cannot make a pipe for the guard of the job",
                                    .where = job_.launcher,
                                    .expected = "free file descriptors",
                                    .got = str_cat("errno ", errno),
                                    .fix = "raise the limit (ulimit -n)"});
  }
  const FileDescriptor read_end(ends[0]);
  guard_line_ = FileDescriptor(ends[1]);
  const std::string agent = find_companion("fleet_agent");
  guard_ = spawn_child({.program = agent,
                        .argv = {agent, "--guard", launch_mark(job_.launch_id), job_.run_folder},
                        .environment = Environment(),
                        .output_fd = -1,
                        .passed_fd = read_end.get(),
                        .dies_with_parent = false});
}

void Supervisor::stop_guard() {
  if (guard_ <= 0) return;
  ::kill(guard_, SIGKILL);
  ::waitpid(guard_, nullptr, 0);
  guard_ = 0;
}

void Supervisor::sweep() {
  const std::vector<pid_t> left = kill_descendants(kKillLimit, guard_ > 0 ? guard_ : -1);
  if (!left.empty()) {
    console_.complain(str_cat("cannot end process ", join(left, ", "),
                              ": the kernel holds it in an uninterruptible call"));
  }
}

void Supervisor::on_signal(int signal) {
  if (signal == SIGCHLD) return reap();
  if (state_ == State::kOver) {
    interrupted_by_ = signal;
    return loop_.stop();
  }
  if (options_.listener != nullptr && !told_listener_) {
    told_listener_ = true;
    return options_.listener->on_signal(signal);
  }
  if (interrupted_by_ != 0 || told_listener_) return kill_now();
  interrupt(signal);
}

void Supervisor::interrupt(int signal) {
  interrupted_by_ = signal;
  if (is_ending()) return;
  const bool waits = options_.servers_end_themselves && !has_workers();
  const bool saves = std::any_of(records_.begin(), records_.end(),
                                 [](const auto& r) { return r.saves && r.running; });
  if (signal == SIGTERM && state_ == State::kRunning && (saves || waits)) {
    return let_workers_save();
  }
  console_.say(str_cat(signal_name(signal), ": ending ", counted(running(), "process"),
                       " (again to kill at once)"));
  begin_end();
}

// Servers stay as long as workers save.
void Supervisor::let_workers_save() {
  console_.say(str_cat("SIGTERM: workers ", has_workers() ? "" : "of other hosts ",
                       "save and end, in ", seconds_text(options_.save_grace),
                       " at most (again to kill at once)"));
  state_ = State::kSaving;
  host_->end_workers();
  set_timer(options_.save_grace, [this] {
    save_time_over_ = true;
    begin_end();
  });
}

void Supervisor::save() {
  if (interrupted_by_ == 0) interrupt(SIGTERM);
}

void Supervisor::end(const std::string& reason) {
  if (is_ending()) return;
  ended_elsewhere_ = true;
  console_.say(str_cat(reason, ": ending ", counted(running(), "process")));
  begin_end();
}

void Supervisor::watch_stdin() {
  loop_.watch(STDIN_FILENO, [this] {
    char ignored[256];
    const ssize_t count = ::read(STDIN_FILENO, ignored, sizeof ignored);
    if (count > 0 || (count < 0 && errno == EINTR)) return;
    loop_.unwatch(STDIN_FILENO);
    on_signal(SIGTERM);
  });
}

void Supervisor::reap() {
  while (true) {
    siginfo_t info{};
    const int kinds = WEXITED | WSTOPPED | WCONTINUED | WNOHANG;
    if (::waitid(P_ALL, 0, &info, kinds) != 0 || info.si_pid == 0) return;
    if (info.si_pid == guard_) {
      on_guard_lost(info);
    } else {
      host_->on_child(info);
    }
  }
}

void Supervisor::on_guard_lost(const siginfo_t& info) {
  if (info.si_code == CLD_CONTINUED) return;
  if (info.si_code != CLD_STOPPED) guard_ = 0;
  if (!trouble_.empty() || is_ending()) return;
  trouble_ = str_cat("the guard of the job (pid ", info.si_pid, ", fleet_agent) ",
                     info.si_code == CLD_STOPPED ? "was stopped" : exit_status_of(info).to_string(),
                     ": without it processes could outlive the launcher");
  await_messages();
}

void Supervisor::on_started(size_t index, pid_t pid) {
  records_[index].pid = pid;
  records_[index].running = true;
  records_[index].started = loop_.now();
}

void Supervisor::on_ended(size_t index, const Ending& ending) {
  ProcessRecord& record = records_[index];
  record.running = false;
  record.ended = loop_.now();
  record.ending = ending;
  if (options_.workers_take_leave && ending.ok() && record.completed == false) {
    record.ending.reason = "ended without stop_worker";
  }
  const bool carrier = !record.role.has_value();
  const bool saved = has_saved(record);
  if (!carrier && !ending.ok() && !saved && options_.on_death) {
    options_.on_death(*record.role, record.index, ending.to_string());
  }
  const bool left_early = carrier && !workers_done();
  if (!ending.asked && !is_ending()) {
    // Also where every rank ended with 0, one of them without taking leave of the others.
    const bool failed = left_early || !(record.ending.ok() || saved);
    if (failed) {
      failed_.push_back(index);
      await_messages();
    } else if (record.role == Role::kWorker) {
      board_.worker_ended();
      if (options_.listener != nullptr) options_.listener->on_worker_done();
      if (state_ == State::kRunning && workers_done()) finish_workers();
    }
  }
  if (state_ == State::kSaving && !carrier) after_saving(index);
  stop_when_all_ended();
}

// A worker that did not listen ends by the signal, which is no failure.
void Supervisor::after_saving(size_t index) {
  const ProcessRecord& record = records_[index];
  const bool well =
      record.ending.ok() || has_saved(record) || record.ending.status.signal == SIGTERM;
  if (record.role == Role::kWorker && !well) {
    failed_.push_back(index);
    state_ = State::kRunning;
    return await_messages();
  }
  if (workers_run() || !has_workers()) return;
  if (!workers_done()) return begin_end();
  if (!workers_saved()) interrupted_by_ = 0;  // the job was at its end
  finish_workers();
}

void Supervisor::on_stopped(size_t index, bool stopped) {
  records_[index].stopped = stopped;
  if (const auto timer = stop_timers_.extract(index)) loop_.cancel(timer.mapped());
  if (!stopped || is_ending()) return;
  console_.say(str_cat(records_[index].title, " (pid ", records_[index].pid,
                       ") was stopped; the job ends in ", seconds_text(options_.heartbeat_timeout),
                       " unless it continues"));
  stop_timers_[index] = loop_.call_after(options_.heartbeat_timeout + kTimeForPeers, [this, index] {
    stop_timers_.erase(index);
    if (!records_[index].running) return;
    on_stuck(index, "was stopped (SIGSTOP or the like) and not continued");
  });
}

void Supervisor::on_stuck(size_t index, const std::string& reason) {
  if (is_ending()) return;
  records_[index].ending.reason = reason;
  failed_.push_back(index);
  await_messages();
}

void Supervisor::on_asked(size_t index) {
  if (state_ != State::kRunning && state_ != State::kFinishing) return;
  trouble_ = records_[index].title + " was told by mpirun to end (SIGTERM)";
  await_messages();
}

void Supervisor::on_progress(size_t index, std::string_view line) {
  ProcessRecord& record = records_[index];
  const size_t told = line.find(" completed=");
  if (told != std::string_view::npos)
    record.completed = line.substr(told).starts_with(" completed=1");
  if (told != std::string_view::npos)
    record.saves = line.find(" saves=1") != std::string_view::npos;
  if (!record.role) return;
  board_.update(*record.role, record.index, line, loop_.now());
  if (options_.listener != nullptr) options_.listener->on_line(*record.role, record.index, line);
}

void Supervisor::await_messages() {
  if (state_ != State::kRunning && state_ != State::kFinishing) return;
  state_ = State::kAwaitingMessages;
  failed_at_ = loop_.now();
  set_timer(options_.message_time, [this] { begin_end(); });
}

void Supervisor::begin_end() {
  if (is_ending()) return;
  announce_failure();
  state_ = State::kEnding;
  host_->end();
  set_timer(options_.term_grace, [this] { kill_now(); });
  stop_when_all_ended();
}

void Supervisor::kill_now() {
  if (state_ == State::kAwaitingMessages) announce_failure();
  state_ = State::kKilling;
  host_->kill();
  set_timer(kKillLimit, [this] { loop_.stop(); });
}

void Supervisor::finish_workers() {
  state_ = State::kFinishing;
  if (options_.servers_end_themselves) return;
  const bool carried = !host_->carrier().empty();
  const auto end_rest = [this] {
    state_ = State::kEnding;
    host_->end();
    set_timer(options_.term_grace, [this] { kill_now(); });
  };
  // Agents wait for a word behind each exit code but 0.
  if (carried && workers_saved()) return end_rest();
  set_timer(carried ? kCarrierGrace : options_.server_grace, end_rest);
}

void Supervisor::stop_when_all_ended() {
  if (running() > 0 || state_ == State::kOver) return;
  if (state_ == State::kAwaitingMessages) announce_failure();
  const bool not_all_started = std::any_of(records_.begin(), records_.end(), [](const auto& r) {
    return r.pid == 0 && r.role.has_value();
  });
  if (state_ == State::kRunning && not_all_started) return;
  state_ = State::kKilling;
  loop_.stop();
}

void Supervisor::announce_failure() {
  if (failed_.empty() && trouble_.empty()) return;
  host_->finish_progress();
  const std::string others =
      running() > 0 ? str_cat("ending ", counted(running(), "process"), "; ") : "";
  const std::string ending =
      str_cat(nonfinite_text(), "\n  ", others, "all logs are in ", job_.log_folder);
  console_.finish_progress();
  bool sure = true;
  if (failed_.empty()) {
    reason_ = trouble_;
    console_.complain(trouble_ + ending);
  } else {
    const Cause cause = choose_cause(records_, failed_);
    sure = cause.sure;
    const ExitStatus& status = records_[cause.record].ending.status;
    reason_ = records_[cause.record].title + " " + cause.what;
    if (status.signal == 0 && status.code == kExitUsage) {
      why_final_ = misuse_text();
    }
    console_.complain(explain(cause, records_, loop_.now()) + ending);
  }
  reason_ = reason_.substr(0, reason_.find('\n'));
  if (options_.listener != nullptr) {
    options_.listener->on_failure({failed_at_, reason_, sure, why_final_});
  }
}

// With what to do about it; empty when everything is finite.
std::string Supervisor::nonfinite_text() const {
  const std::vector<std::string> found = board_.nonfinite();
  std::string text;
  for (const std::string& line : found) text += "\n  not finite: " + line;
  if (!found.empty()) {
    text +=
        "\n  fix: lower the learning rate, or clip the gradients; FLAGS_check_nan_inf=1 finds "
        "the op";
  }
  return text;
}

int Supervisor::running() const {
  return static_cast<int>(
      std::count_if(records_.begin(), records_.end(), [](const auto& r) { return r.running; }));
}

bool Supervisor::workers_done() const {
  return std::none_of(records_.begin(), records_.end(), [](const ProcessRecord& r) {
    const bool well = r.ending.ok() || has_saved(r);
    return r.role == Role::kWorker && (r.pid == 0 || r.running || !well);
  });
}

bool Supervisor::workers_saved() const {
  return workers_done() && std::any_of(records_.begin(), records_.end(), has_saved);
}

// Servers without workers beside them have, when they end by themselves after SIGTERM.
bool Supervisor::has_saved_part() const {
  if (has_workers()) return workers_saved();
  return interrupted_by_ == SIGTERM && !save_time_over_ &&
         std::all_of(records_.begin(), records_.end(), [](const auto& r) { return r.ending.ok(); });
}

bool Supervisor::has_workers() const {
  return std::any_of(records_.begin(), records_.end(),
                     [](const ProcessRecord& r) { return r.role == Role::kWorker; });
}

bool Supervisor::workers_run() const {
  return std::any_of(records_.begin(), records_.end(),
                     [](const ProcessRecord& r) { return r.role == Role::kWorker && r.running; });
}

void Supervisor::show_end() {
  display_.show_end();
  if (ended_elsewhere_) return;
  if (failed_.empty() && trouble_.empty() && has_saved_part()) {
    return console_.say(str_cat("the job has saved and ended, as it was told (exit code ",
                                kExitRequeue, "); start it again to go on"));
  }
  const bool well = failed_.empty() && trouble_.empty() && interrupted_by_ == 0;
  const bool silent = options_.json || options_.tee;
  if (well && (!silent || !board_.nonfinite().empty())) tell_result();
}

// What the first worker here wrote last is a job's result, most often.
void Supervisor::tell_result() {
  const std::string nonfinite = nonfinite_text();
  std::string text = nonfinite.empty() ? "ended well" : "ended, but not well";
  if (const std::string restarts = board_.restarts_text(loop_.now()); !restarts.empty()) {
    text += " after " + restarts;
  }
  text += str_cat("; all logs are in ", job_.log_folder, nonfinite);
  const auto worker =
      std::find_if(records_.begin(), records_.end(),
                   [](const ProcessRecord& record) { return record.role == Role::kWorker; });
  if (worker != records_.end()) {
    for (const std::string& line : last_lines(worker->log_file, 1, worker->log_begin)) {
      text += str_cat("\n  ", worker->title, " says: ", line);
    }
  }
  console_.say(text);
}

void Supervisor::set_timer(Duration delay, EventLoop::Handler handler) {
  if (state_timer_) loop_.cancel(*state_timer_);
  state_timer_ = loop_.call_after(delay, std::move(handler));
}

}  // namespace fleet::launch
