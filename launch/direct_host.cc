#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <set>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"
#include "launch/host.h"
#include "launch/log_file.h"

namespace fleet::launch {
namespace {

class DirectHost : public Host {
 public:
  DirectHost(const Job& job, EventLoop& loop, PortReservation& ports, const HostOptions& options)
      : job_(job), loop_(loop), ports_(ports), options_(options) {}

  void start(HostListener& listener) override {
    listener_ = &listener;
    for (size_t i = 0; i < job_.members.size(); ++i) start_member(i);
  }

  void on_child(const siginfo_t& info) override {
    const auto found = running_.find(info.si_pid);
    if (found == running_.end()) return;
    const size_t index = found->second;
    if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
      const bool stopped = info.si_code == CLD_STOPPED;
      if (stopped) {
        stopped_.insert(info.si_pid);
      } else {
        stopped_.erase(info.si_pid);
      }
      listener_->on_stopped(index, stopped);
      return;
    }
    running_.erase(found);
    if (const auto reader = readers_.find(index); reader != readers_.end()) {
      reader->second->finish();  // what it said last
    }
    listener_->on_ended(index, {.status = exit_status_of(info), .asked = asked_, .reason = ""});
  }

  void end() override { end_members(false); }
  void end_workers() override { end_members(true); }

  void finish_progress() override {
    for (const auto& [index, reader] : readers_) reader->finish();
  }

  void kill() override {
    asked_ = true;
    for (const auto& [pid, index] : running_) ::kill(-pid, SIGKILL);
  }

 private:
  void end_members(bool workers_only) {
    asked_ = true;
    for (const auto& [pid, index] : running_) {
      if (workers_only && job_.members[index].role != Role::kWorker) continue;
      ::kill(-pid, stopped_.count(pid) > 0 ? SIGKILL : SIGTERM);
    }
  }

  void start_member(size_t index) {
    const Member& member = job_.members[index];
    const FileDescriptor log = open_log(member.log_file, false);
    ChildOptions child{.program = job_.program,
                       .argv = job_.command,
                       .environment = merged(job_.common, member.variables),
                       .output_fd = log.get()};
    child.environment.set("FLEET_LOCAL_PROCESSES", str_cat(job_.members.size()));
    child.environment.set("FLEET_LOCAL_INDEX", str_cat(index));
    const FileDescriptor write_end = progress_pipe(index);
    if (write_end) {
      child.passed_fd = write_end.get();
      child.environment.set("FLEET_PROGRESS_FD", str_cat(kPassedFd));
    }
    if (member.port) ports_.lend(*member.port);
    const pid_t pid = spawn_child(child);
    running_.emplace(pid, index);
    listener_->on_started(index, pid);
  }

  FileDescriptor progress_pipe(size_t index) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      if (!options_.progress) return FileDescriptor();
      throw_error(ErrorCode::kInput, {.what = "cannot make a pipe for --progress",
                                      .where = job_.members[index].title(),
                                      .expected = "free file descriptors",
                                      .got = str_cat("errno ", errno),
                                      .fix = "raise the limit (ulimit -n)"});
    }
    readers_[index] = std::make_unique<LineReader>(
        loop_, FileDescriptor(ends[0]), "",
        [this, index](std::string_view line) { listener_->on_progress(index, line); });
    return FileDescriptor(ends[1]);
  }

  const Job& job_;
  EventLoop& loop_;
  PortReservation& ports_;
  HostOptions options_;
  HostListener* listener_ = nullptr;
  bool asked_ = false;
  std::map<pid_t, size_t> running_;
  std::set<pid_t> stopped_;
  std::map<size_t, std::unique_ptr<LineReader>> readers_;  // by member
};

}  // namespace

std::unique_ptr<Host> make_direct_host(const Job& job, EventLoop& loop, PortReservation& ports,
                                       const HostOptions& options) {
  return std::make_unique<DirectHost>(job, loop, ports, options);
}

ExitStatus exit_status_of(const siginfo_t& info) {
  ExitStatus status;
  if (info.si_code == CLD_EXITED) {
    status.code = info.si_status;
  } else {
    status.signal = info.si_status;
    status.core_dumped = info.si_code == CLD_DUMPED;
  }
  return status;
}

}  // namespace fleet::launch
