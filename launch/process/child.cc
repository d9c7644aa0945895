#include "launch/process/child.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process/file_descriptor.h"
#include "base/strings.h"
#include "launch/process/process_tree.h"

namespace fleet::launch {
namespace {

constexpr int kFirstHighFd = 10;
constexpr int kExecLookMs = 1000;
constexpr int kExecLooks = 30;

// What the child needs between fork and exec, made before the fork: only async-signal-safe calls
// are allowed there.
struct Prepared {
  std::vector<char*> argv;
  std::vector<std::string> environment_text;
  std::vector<char*> environment;
  FileDescriptor null;
  FileDescriptor passed;
  FileDescriptor error_read;
  FileDescriptor error_write;
  pid_t parent = 0;
};

int move_high(int fd) {
  return ::fcntl(fd, F_DUPFD_CLOEXEC, kFirstHighFd);
}

Prepared prepare(const ChildOptions& options) {
  Prepared prepared;
  for (const std::string& argument : options.argv) {
    prepared.argv.push_back(const_cast<char*>(argument.c_str()));
  }
  prepared.argv.push_back(nullptr);
  for (const auto& [name, value] : options.environment.all()) {
    prepared.environment_text.push_back(str_cat(name, "=", value));
  }
  for (std::string& entry : prepared.environment_text) prepared.environment.push_back(entry.data());
  prepared.environment.push_back(nullptr);
  prepared.null = FileDescriptor(::open("/dev/null", O_RDWR | O_CLOEXEC));
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0 || !prepared.null) {
    throw_error(ErrorCode::kInput, {.what = "cannot prepare a process",
                                    .where = options.program,
                                    .expected = "free file descriptors",
                                    .got = std::strerror(errno),
                                    .fix = "raise the limit (ulimit -n)"});
  }
  prepared.error_read = FileDescriptor(ends[0]);
  const FileDescriptor low(ends[1]);
  prepared.error_write = FileDescriptor(move_high(low.get()));
  if (options.passed_fd >= 0) prepared.passed = FileDescriptor(move_high(options.passed_fd));
  prepared.parent = ::getpid();
  return prepared;
}

[[noreturn]] void give_up(const Prepared& prepared) {
  const int error = errno;
  [[maybe_unused]] const ssize_t sent = ::write(prepared.error_write.get(), &error, sizeof(error));
  ::_exit(127);
}

[[noreturn]] void become(const ChildOptions& options, const Prepared& prepared) {
  ::setsid();
  if (options.dies_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != prepared.parent) ::_exit(127);  // it ended before the line above
  }
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);

  const int input = options.input_fd >= 0 ? options.input_fd : prepared.null.get();
  const int output = options.output_fd >= 0 ? options.output_fd : prepared.null.get();
  const int errors = options.error_fd >= 0 ? options.error_fd : output;
  if (::dup2(input, 0) < 0 || ::dup2(output, 1) < 0 || ::dup2(errors, 2) < 0) {
    give_up(prepared);
  }
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (prepared.passed && ::dup2(prepared.passed.get(), kPassedFd) < 0) give_up(prepared);
  ::execve(options.program.c_str(), prepared.argv.data(), prepared.environment.data());
  give_up(prepared);
}

// 0 when the child runs its program, 1 with the error when it cannot, -1 when it does neither:
// it was stopped on its way.
int await_exec(pid_t pid, int error_read, int& error) {
  pollfd entry{error_read, POLLIN, 0};
  for (int looks = 0; ::poll(&entry, 1, kExecLookMs) <= 0; ++looks) {
    if (looks < kExecLooks && process_state(pid) != 'T') continue;
    error = ETIMEDOUT;
    return -1;
  }
  return ::read(error_read, &error, sizeof(error)) > 0 ? 1 : 0;
}

}  // namespace

std::string ExitStatus::to_string() const {
  if (signal != 0) {
    return "was killed by " + signal_name(signal) + (core_dumped ? " (core dumped)" : "");
  }
  return str_cat(code == 0 ? "ended with exit code " : "failed with exit code ", code);
}

ExitStatus exit_status_of(int wait_status) {
  ExitStatus status;
  if (WIFSIGNALED(wait_status)) {
    status.signal = WTERMSIG(wait_status);
    status.core_dumped = WCOREDUMP(wait_status);
  } else {
    status.code = WEXITSTATUS(wait_status);
  }
  return status;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? str_cat("signal ", signal) : str_cat("SIG", name);
}

pid_t spawn_child(const ChildOptions& options) {
  Prepared prepared = prepare(options);
  const pid_t pid = ::fork();
  if (pid == 0) become(options, prepared);
  int error = pid < 0 ? errno : 0;
  prepared.error_write.reset();
  if (pid > 0) {
    const int answer = await_exec(pid, prepared.error_read.get(), error);
    if (answer == 0) return pid;
    if (answer < 0) ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  throw_error(ErrorCode::kInput,
              {.what = "cannot start the program",
               .where = options.program,
               .expected = "a program that this machine can run",
               .got = error == ETIMEDOUT ? "it was stopped before it ran" : std::strerror(error),
               .fix = error == ENOEXEC ? "a script needs a first line such as #!/bin/sh"
                                       : "check the file's format, its interpreter and the limits "
                                         "of this user (ulimit -u)"});
}

std::string find_program(const std::string& name, const Environment& environment) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const auto runnable = [&](const std::string& path) {
    return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') == std::string::npos) {
    const std::string path = environment.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
    for (const std::string& folder : split(path, ':')) {
      std::string candidate = str_cat(folder.empty() ? "." : folder, "/", name);
      if (runnable(candidate)) return candidate;
    }
    const bool here = fs::exists(name, ignored);
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "the program was not found",
                 .where = name,
                 .expected = "an executable file in a folder of PATH, or a path with a slash",
                 .got = here ? "a file of that name in the working folder" : "no such file in PATH",
                 .fix = here ? "write ./" + name : "check the name, or give the path"});
  }
  if (runnable(name)) return name;
  const bool exists = fs::exists(name, ignored);
  const bool folder = fs::is_directory(name, ignored);
  throw_error(ErrorCode::kInvalidArgument,
              {.what = exists ? "the program is not executable" : "the program does not exist",
               .where = name,
               .expected = "an executable file",
               .got = folder   ? "a folder"
                      : exists ? "a file without permission to execute"
                               : "no such file from " + fs::current_path(ignored).string(),
               .fix = folder   ? "name the program inside it"
                      : exists ? "chmod +x " + name
                               : "build it first, or correct the path"});
}

std::string find_companion(const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path path = fs::read_symlink("/proc/self/exe", ignored).parent_path() / name;
  if (::access(path.c_str(), X_OK) == 0) return path.string();
  throw_error(ErrorCode::kInput, {.what = "a program of Fleet is missing",
                                  .where = path.string(),
                                  .expected = "it lies beside the launchers",
                                  .got = std::strerror(errno),
                                  .fix = "build the target " + name + ", or install Fleet again"});
}

}  // namespace fleet::launch
