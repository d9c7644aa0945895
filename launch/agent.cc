#include "launch/agent.h"

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <memory>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"
#include "launch/agent_channel.h"
#include "launch/host.h"
#include "launch/log_file.h"
#include "launch/process/event_loop.h"
#include "launch/process/process_tree.h"

namespace fleet::launch {
namespace {

using std::chrono::seconds;

constexpr Duration kSweepLimit = seconds(2);

class Agent {
 public:
  Agent(AgentChannel channel, std::string socket_name, std::string token, std::string rank)
      : channel_(std::move(channel)),
        socket_name_(std::move(socket_name)),
        token_(std::move(token)),
        rank_(std::move(rank)) {}

  int run();

 private:
  void watch_parent();
  void on_signal(int signal);
  void reap();
  void on_exit(const ExitStatus& status);
  void read_launcher();
  void handle(const AgentMessage& message);
  void start(const StartOrder& order);
  FileDescriptor connect_progress();
  // Ends everything under this process at once, and the agent with it.
  void give_up();

  EventLoop loop_;
  AgentChannel channel_;
  std::string socket_name_;
  std::string token_;
  std::string rank_;
  FileDescriptor parent_;
  pid_t child_ = 0;
  bool started_ = false;
  bool ending_ = false;
  int exit_code_ = 1;
};

int Agent::run() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  loop_.handle_signals({SIGCHLD, SIGCONT, SIGTERM, SIGINT, SIGHUP},
                       [this](int s) { on_signal(s); });
  watch_parent();
  loop_.watch(channel_.fd(), [this] { read_launcher(); });
  if (!channel_.send({.fields = {"hello", token_, rank_, "agent"}})) return 1;
  loop_.run();
  kill_descendants(kSweepLimit);
  return exit_code_;
}

void Agent::watch_parent() {
  const pid_t parent = ::getppid();
  parent_ = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, parent, 0)));
  if (!parent_ || ::getppid() != parent) return give_up();
  loop_.watch(parent_.get(), [this] { give_up(); });
}

void Agent::give_up() {
  channel_.send({.fields = {"orphaned"}});  // so that the launcher looks for the cause elsewhere
  kill_descendants(kSweepLimit);
  loop_.stop();
}

void Agent::on_signal(int signal) {
  if (signal == SIGCHLD) return reap();
  // mpirun wants the rank to end. The launcher, which knows why, says when. Seconds before, mpirun
  // sends SIGCONT.
  if (!channel_.send({.fields = {signal == SIGCONT ? "woken" : "asked"}})) give_up();
}

void Agent::reap() {
  while (true) {
    siginfo_t info{};
    const int kinds = WEXITED | WSTOPPED | WCONTINUED | WNOHANG;
    if (::waitid(P_ALL, 0, &info, kinds) != 0 || info.si_pid == 0) return;
    if (info.si_pid != child_) continue;
    if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
      channel_.send({.fields = {info.si_code == CLD_STOPPED ? "stopped" : "continued"}});
      continue;
    }
    on_exit(exit_status_of(info));
  }
}

void Agent::on_exit(const ExitStatus& status) {
  child_ = 0;
  exit_code_ = 0;  // launch knows; mpirun would only hold up the end
  channel_.send({.fields = {"exited", str_cat(status.code), str_cat(status.signal),
                            status.core_dumped ? "1" : "0"}});
  // After a failure this process stays until it is told to leave: mpirun would end the other ranks
  // before they can say what they saw.
  if (status.ok() || ending_) loop_.stop();
}

void Agent::read_launcher() {
  std::vector<AgentMessage> messages;
  const bool open = channel_.receive(messages);
  for (const AgentMessage& message : messages) handle(message);
  if (!open) give_up();
}

void Agent::handle(const AgentMessage& message) {
  const std::string& kind = message.kind();
  if (kind == "ping") {
    channel_.send({.fields = {"pong"}});
  } else if (kind == "start" && !started_) {
    const auto order = StartOrder::from_message(message);
    if (!order) return give_up();
    start(*order);
  } else if (kind == "end") {
    ending_ = true;
    if (child_ == 0) return loop_.stop();
    const bool stopped = process_state(child_) == 'T';
    ::kill(-child_, stopped ? SIGKILL : SIGTERM);
  } else if (kind == "kill") {
    if (child_ > 0) ::kill(-child_, SIGKILL);
    give_up();
  }
}

FileDescriptor Agent::connect_progress() {
  FileDescriptor socket = connect_abstract(socket_name_);
  AgentChannel hello(std::move(socket));
  hello.send({.fields = {"hello", token_, rank_, "progress"}});
  FileDescriptor stream = hello.detach().first;
  ::fcntl(stream.get(), F_SETFL, ::fcntl(stream.get(), F_GETFL) | O_NONBLOCK);
  return stream;
}

void Agent::start(const StartOrder& order) {
  started_ = true;
  auto variables = Environment::of_process().all();
  for (const std::string& name : order.unset) variables.erase(name);
  ChildOptions options{.program = order.program,
                       .argv = order.argv,
                       .environment = merged(Environment(std::move(variables)), order.set)};
  try {
    const FileDescriptor log = open_log(order.log_file, false);
    options.output_fd = log.get();
    FileDescriptor progress;
    if (order.progress) {
      progress = connect_progress();
      options.passed_fd = progress.get();
      options.environment.set("FLEET_PROGRESS_FD", str_cat(kPassedFd));
    }
    child_ = spawn_child(options);
    channel_.send({.fields = {"started", str_cat(child_)}});
  } catch (const Error& error) {
    channel_.send({.fields = {"refused", error.what()}});
  }
}

}  // namespace

int run_agent() {
  const Environment environment = Environment::of_process();
  const auto socket = environment.get("FLEET_AGENT_SOCKET");
  const auto token = environment.get("FLEET_AGENT_TOKEN");
  const auto rank = environment.get("OMPI_COMM_WORLD_RANK");
  if (!socket || !token || !rank) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "fleet_agent is started by launch through mpirun, not by hand",
                 .where = "environment",
                 .expected = "FLEET_AGENT_SOCKET, FLEET_AGENT_TOKEN and OMPI_COMM_WORLD_RANK",
                 .got = "",
                 .fix = "run launch --nproc_per_node N program"});
  }
  return Agent(AgentChannel(connect_abstract(*socket)), *socket, *token, *rank).run();
}

int run_guard(const std::string& mark, const std::string& run_folder) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  char byte = 0;
  ssize_t count = 0;
  do {
    count = ::read(kPassedFd, &byte, 1);
  } while (count > 0 || (count < 0 && errno == EINTR));
  kill_marked(mark, seconds(30));
  std::error_code ignored;
  if (!run_folder.empty()) std::filesystem::remove_all(run_folder, ignored);
  return 0;
}

}  // namespace fleet::launch
