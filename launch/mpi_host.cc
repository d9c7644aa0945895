#include <algorithm>
#include <csignal>
#include <deque>
#include <map>
#include <set>
#include <sys/uio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process/random_hex.h"
#include "base/process/usable_cores.h"
#include "base/strings.h"
#include "launch/agent_channel.h"
#include "launch/host.h"
#include "launch/log_file.h"
#include "launch/process/process_tree.h"

namespace fleet::launch {
namespace {

using std::chrono::seconds;

constexpr Duration kPingInterval = seconds(1);
constexpr Duration kStartLimit = seconds(30);
constexpr Duration kAllStarted = seconds(2);
// Kinds that no agent sends: its channel ended; and what was kept until others were heard.
constexpr const char* kLost = "(lost)";
constexpr const char* kWokenLast = "(woken)";
constexpr const char* kAskedLast = "(asked)";
constexpr const char* kRankVariable = "OMPI_COMM_WORLD_RANK";

// Whether one process may read another's memory here, as far as a process can tell by itself;
// containers often forbid the call, and Open MPI then complains for every message.
bool cross_memory_reads_work() {
  char from = 1;
  char to = 0;
  const iovec local{.iov_base = &to, .iov_len = 1};
  const iovec remote{.iov_base = &from, .iov_len = 1};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == 1;
}

// What Open MPI wants on one machine, unless the user's environment says otherwise.
void add_mpi_settings(Environment& environment, const Job& job) {
  const auto set_default = [&](const std::string& name, const std::string& value) {
    if (!environment.has(name)) environment.set(name, value);
  };
  if (::geteuid() == 0) {
    environment.set("OMPI_ALLOW_RUN_AS_ROOT", "1");
    environment.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  }
  environment.set("OMPI_MCA_plm", "isolated");
  environment.set("OMPI_MCA_ras", "^slurm,gridengine");
  environment.set("OMPI_MCA_orte_tmpdir_base", job.run_folder);
  environment.set("OMPI_MCA_odls_base_sigkill_timeout", "4");
  set_default("OMPI_MCA_pml", "ob1");
  set_default("OMPI_MCA_btl", "self,vader,tcp");
  set_default("OMPI_MCA_btl_tcp_if_include", "lo");
  set_default("OMPI_MCA_mpi_warn_on_fork", "0");
  set_default("OMPI_MCA_btl_base_warn_component_unused", "0");
  if (job.run_folder.starts_with("/dev/shm/")) {
    set_default("OMPI_MCA_btl_vader_backing_directory", job.run_folder);
  }
  if (!cross_memory_reads_work()) {
    set_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
  }
  if (static_cast<int>(job.members.size()) > usable_cores()) {
    set_default("OMPI_MCA_mpi_yield_when_idle", "1");
  }
}

std::string find_mpirun(const Environment& environment) {
  try {
    return find_program("mpirun", environment);
  } catch (const UsageError& error) {
    throw_error(ErrorCode::kInput, {.what = "Open MPI was not found",
                                    .where = "mpirun",
                                    .expected = "mpirun in a folder of PATH",
                                    .got = error.text().got,
                                    .fix = "apt install openmpi-bin"});
  }
}

class MpiHost : public Host {
 public:
  MpiHost(const Job& job, EventLoop& loop, PortReservation& ports, const HostOptions& options)
      : job_(job),
        loop_(loop),
        ports_(ports),
        options_(options),
        token_(random_hex(16)),
        ranks_(job.members.size()) {}

  ~MpiHost() override {
    loop_.cancel(ping_timer_);
    loop_.cancel(start_timer_);
    if (listener_socket_) loop_.unwatch(listener_socket_.get());
    for (const auto& [fd, channel] : strangers_) loop_.unwatch(fd);
    for (const Rank& rank : ranks_) {
      if (rank.channel) loop_.unwatch(rank.channel->fd());
    }
  }

  std::string carrier() const override { return "mpirun"; }
  std::string carrier_log() const override { return job_.log_folder + "/mpirun.log"; }

  void start(HostListener& listener) override;
  void on_child(const siginfo_t& info) override;
  void end() override;
  void end_workers() override { end(); }
  void kill() override;
  void finish_progress() override {
    for (const auto& reader : progress_) reader->finish();
  }

 private:
  struct Rank {
    std::unique_ptr<AgentChannel> channel;
    pid_t agent = 0;
    TimePoint last_heard;
    bool started = false;
    bool ended = false;
    bool reported_silent = false;
  };

  void accept_one();
  void read_stranger(int fd);
  void admit(const AgentMessage& hello, int fd);
  void read_rank(size_t index);
  void receive_from(size_t index);
  void receive_from_all();
  void handle_received();
  void on_lost(size_t index);
  void handle(size_t index, const AgentMessage& message);
  void report_end(size_t index, const Ending& ending);
  void look_at_starters();
  void look_for_lost_starter(const std::set<std::string>& alive);
  std::set<std::string> ranks_with_a_process() const;
  void ping();
  void end_mpirun_after_agents();
  StartOrder order_for(size_t index) const;
  void send_all(const char* kind);

  const Job& job_;
  EventLoop& loop_;
  PortReservation& ports_;
  HostOptions options_;
  std::string token_;
  HostListener* listener_ = nullptr;
  FileDescriptor listener_socket_;
  std::map<int, std::pair<std::unique_ptr<AgentChannel>, pid_t>> strangers_;  // no hello yet
  std::vector<Rank> ranks_;
  // What ranks said and was not handled yet, in the order in which it was read.
  std::deque<std::pair<size_t, AgentMessage>> received_;
  std::vector<std::unique_ptr<LineReader>> progress_;
  pid_t mpirun_ = 0;
  bool mpirun_stopped_ = false;
  bool rank_failed_ = false;
  pid_t stopped_starter_ = 0;
  TimePoint stopped_since_;
  std::set<std::string> starters_;
  TimePoint starters_since_;
  bool asked_ = false;
  EventLoop::Timer ping_timer_;
  EventLoop::Timer start_timer_;
};

void MpiHost::start(HostListener& listener) {
  listener_ = &listener;
  const std::string mpirun = find_mpirun(job_.common);
  const std::string agent = find_companion("fleet_agent");
  const std::string name = "fleet-launch-" + random_hex(8);
  listener_socket_ = listen_abstract(name);
  loop_.watch(listener_socket_.get(), [this] { accept_one(); });

  ChildOptions child{.program = mpirun,
                     .argv = {"mpirun", "-np", str_cat(job_.members.size()), "--oversubscribe",
                              "--bind-to", "none", agent},
                     .environment = job_.common};
  add_mpi_settings(child.environment, job_);
  child.environment.set("FLEET_AGENT_SOCKET", name);
  child.environment.set("FLEET_AGENT_TOKEN", token_);
  const FileDescriptor log = open_log(carrier_log(), false);
  child.output_fd = log.get();
  mpirun_ = spawn_child(child);
  listener_->on_started(ranks_.size(), mpirun_);
  ping_timer_ = loop_.call_after(kPingInterval, [this] { ping(); });
  start_timer_ = loop_.call_after(kStartLimit, [this] {
    const bool all = std::all_of(ranks_.begin(), ranks_.end(),
                                 [](const Rank& rank) { return rank.started || rank.ended; });
    if (!all) listener_->on_stuck(ranks_.size(), "did not start all ranks within 30 s");
  });
}

void MpiHost::accept_one() {
  pid_t peer = 0;
  auto socket = accept_own_user(listener_socket_.get(), peer);
  if (!socket) return;
  const int fd = socket->get();
  strangers_[fd] = {std::make_unique<AgentChannel>(std::move(*socket)), peer};
  loop_.watch(fd, [this, fd] { read_stranger(fd); });
}

void MpiHost::read_stranger(int fd) {
  std::vector<AgentMessage> messages;
  const bool open = strangers_.at(fd).first->receive(messages);
  if (!messages.empty()) return admit(messages.front(), fd);
  if (open) return;
  loop_.unwatch(fd);
  strangers_.erase(fd);
}

void MpiHost::admit(const AgentMessage& hello, int fd) {
  loop_.unwatch(fd);
  auto [channel, pid] = std::move(strangers_.at(fd));
  strangers_.erase(fd);
  const auto index = static_cast<size_t>(hello.number(2));
  const bool valid = hello.kind() == "hello" && hello.fields.size() == 4 &&
                     hello.fields[1] == token_ && index < ranks_.size();
  if (!valid) return;
  if (hello.fields[3] == "progress") {
    auto [socket, begun] = channel->detach();
    progress_.push_back(std::make_unique<LineReader>(
        loop_, std::move(socket), std::move(begun),
        [this, index](std::string_view line) { listener_->on_progress(index, line); }));
    return;
  }
  Rank& rank = ranks_[index];
  if (rank.channel || rank.ended) return;
  rank.agent = pid;
  rank.last_heard = loop_.now();
  if (job_.members[index].port) ports_.lend(*job_.members[index].port);
  rank.channel = std::move(channel);
  rank.channel->send(order_for(index).to_message());
  if (asked_) rank.channel->send({.fields = {"kill"}});
  loop_.watch(rank.channel->fd(), [this, index] { read_rank(index); });
}

StartOrder MpiHost::order_for(size_t index) const {
  const Member& member = job_.members[index];
  return {.log_file = member.log_file,
          .program = job_.program,
          .progress = true,
          .argv = job_.command,
          .set = member.variables,
          .unset = {"FLEET_AGENT_SOCKET", "FLEET_AGENT_TOKEN"}};
}

void MpiHost::read_rank(size_t index) {
  receive_from(index);
  handle_received();
}

void MpiHost::receive_from(size_t index) {
  Rank& rank = ranks_[index];
  if (!rank.channel) return;
  std::vector<AgentMessage> messages;
  const bool open = rank.channel->receive(messages);
  rank.last_heard = loop_.now();
  for (AgentMessage& message : messages) received_.emplace_back(index, std::move(message));
  if (open) return;
  loop_.unwatch(rank.channel->fd());
  rank.channel.reset();
  received_.emplace_back(index, AgentMessage{.fields = {kLost}});
}

void MpiHost::receive_from_all() {
  for (size_t i = 0; i < ranks_.size(); ++i) receive_from(i);
}

void MpiHost::handle_received() {
  while (!received_.empty()) {
    const auto [index, message] = std::move(received_.front());
    received_.pop_front();
    handle(index, message);
  }
}

void MpiHost::on_lost(size_t index) {
  end_mpirun_after_agents();
  const Rank& rank = ranks_[index];
  if (rank.ended) return;
  const std::string who = str_cat("was lost: its agent (pid ", rank.agent, ") was killed");
  report_end(index, {.status = {}, .asked = asked_, .reason = who});
}

void MpiHost::handle(size_t index, const AgentMessage& message) {
  const std::string& kind = message.kind();
  if (kind == "started") {
    ranks_[index].started = true;
    listener_->on_started(index, static_cast<pid_t>(message.number(1)));
  } else if (kind == "refused") {
    report_end(index, {.status = {.code = 127},
                       .asked = false,
                       .reason = "could not be started: " +
                                 (message.fields.size() > 1 ? message.fields[1] : "")});
  } else if (kind == "exited") {
    const ExitStatus status{.code = static_cast<int>(message.number(1)),
                            .signal = static_cast<int>(message.number(2)),
                            .core_dumped = message.number(3) != 0};
    report_end(index, {.status = status, .asked = asked_, .reason = ""});
  } else if (kind == "stopped" || kind == "continued") {
    listener_->on_stopped(index, kind == "stopped");
  } else if (kind == "woken" || kind == "asked") {  // by mpirun, when it has lost another one
    receive_from_all();                             // what they said before counts first
    received_.emplace_back(index,
                           AgentMessage{.fields = {kind == "asked" ? kAskedLast : kWokenLast}});
  } else if (kind == kAskedLast || kind == kWokenLast) {
    if (mpirun_ > 0) look_for_lost_starter(ranks_with_a_process());
    if (kind == kAskedLast) listener_->on_asked(index);
  } else if (kind == kLost) {
    on_lost(index);
  } else if (kind == "orphaned") {  // mpirun is gone, and that is what will be reported
    report_end(index, {.status = {.code = 0, .signal = SIGKILL}, .asked = true, .reason = ""});
  }
}

void MpiHost::report_end(size_t index, const Ending& ending) {
  if (ranks_[index].ended) return;
  ranks_[index].ended = true;
  rank_failed_ = rank_failed_ || (!ending.asked && !ending.ok());
  listener_->on_ended(index, ending);
}

void MpiHost::on_child(const siginfo_t& info) {
  if (info.si_pid != mpirun_ || mpirun_ == 0) return;
  if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
    mpirun_stopped_ = info.si_code == CLD_STOPPED;
    listener_->on_stopped(ranks_.size(), mpirun_stopped_);
    return;
  }
  receive_from_all();  // what they said before counts first
  handle_received();
  mpirun_ = 0;
  listener_->on_ended(ranks_.size(),
                      {.status = exit_status_of(info), .asked = asked_, .reason = ""});
}

std::set<std::string> MpiHost::ranks_with_a_process() const {
  std::set<std::string> ranks;
  for (const pid_t pid : descendants_of(mpirun_)) ranks.insert(variable_of(pid, kRankVariable));
  ranks.erase("");
  return ranks;
}

// An agent that died before it spoke is known by its absence.
void MpiHost::look_for_lost_starter(const std::set<std::string>& alive) {
  if (rank_failed_ || asked_ || mpirun_ <= 0) return;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].channel || ranks_[i].ended || alive.contains(str_cat(i))) continue;
    return report_end(i, {.status = {},
                          .asked = false,
                          .reason = "was lost: its agent was killed before it had started"});
  }
}

// A rank whose agent has not spoken yet may have been stopped or killed on its way there.
void MpiHost::look_at_starters() {
  const bool all_spoke = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    return rank.channel != nullptr || rank.ended;
  });
  if (all_spoke || mpirun_ <= 0) return;
  pid_t stopped = 0;
  for (const pid_t pid : descendants_of(mpirun_)) {
    if (process_state(pid) == 'T') stopped = pid;
  }
  // mpirun starts all of them one right after the other.
  auto alive = ranks_with_a_process();
  if (alive != starters_) {
    starters_ = std::move(alive);
    starters_since_ = loop_.now();
  } else if (!alive.empty() && !mpirun_stopped_ && loop_.now() - starters_since_ >= kAllStarted) {
    look_for_lost_starter(alive);
  }
  if (stopped == 0 || stopped != stopped_starter_) {
    stopped_starter_ = stopped;
    stopped_since_ = loop_.now();
  } else if (loop_.now() - stopped_since_ >= options_.heartbeat_timeout) {
    const auto rank = parse_int(variable_of(stopped, kRankVariable));
    const bool known = rank && static_cast<size_t>(*rank) < ranks_.size();
    listener_->on_stuck(known ? static_cast<size_t>(*rank) : ranks_.size(),
                        str_cat(known ? "does not start: its agent (pid "
                                      : "cannot start all ranks: its process (pid ",
                                stopped, ") is stopped (SIGSTOP)"));
  }
}

void MpiHost::ping() {
  look_at_starters();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (!rank.channel || rank.ended) continue;
    rank.channel->send({.fields = {"ping"}});
    if (rank.reported_silent || loop_.now() - rank.last_heard < options_.heartbeat_timeout)
      continue;
    rank.reported_silent = true;
    const bool stopped = process_state(rank.agent) == 'T';
    listener_->on_stuck(i, str_cat("does not answer: its agent (pid ", rank.agent, ") ",
                                   stopped ? "is stopped (SIGSTOP)" : "hangs"));
  }
  ping_timer_ = loop_.call_after(kPingInterval, [this] { ping(); });
}

void MpiHost::send_all(const char* kind) {
  for (Rank& rank : ranks_) {
    if (rank.channel) rank.channel->send({.fields = {kind}});
  }
}

void MpiHost::end() {
  asked_ = true;
  send_all("end");
  for (const Rank& rank : ranks_) {
    if (rank.reported_silent && rank.channel) ::kill(rank.agent, SIGKILL);
  }
  end_mpirun_after_agents();
}

// Without agents mpirun has nothing to end, but would wait for them with a long time limit.
void MpiHost::end_mpirun_after_agents() {
  if (!asked_ || mpirun_ <= 0) return;
  const bool none = std::none_of(ranks_.begin(), ranks_.end(),
                                 [](const Rank& rank) { return rank.channel != nullptr; });
  if (none || mpirun_stopped_) ::kill(-mpirun_, SIGKILL);
}

void MpiHost::kill() {
  asked_ = true;
  send_all("kill");
  if (mpirun_ > 0) ::kill(-mpirun_, SIGKILL);
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].agent > 0 && !ranks_[i].ended) ::kill(ranks_[i].agent, SIGKILL);
  }
}

}  // namespace

std::unique_ptr<Host> make_mpi_host(const Job& job, EventLoop& loop, PortReservation& ports,
                                    const HostOptions& options) {
  return std::make_unique<MpiHost>(job, loop, ports, options);
}

}  // namespace fleet::launch
