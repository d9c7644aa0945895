#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/formats/streams/sources_impl.h"

namespace fleet::fluid::data {
namespace {

constexpr int kGraceMs = 1000;
constexpr int kCannotRun = 127;  // what shells end with when there is no such command

class SpawnSettings {
 public:
  SpawnSettings(int input, int output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_adddup2(&files_, input, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
    posix_spawnattr_init(&attributes_);
    // A group of its own, so that it can be ended with all that it started. The signals as a shell
    // expects them: this process may ignore SIGPIPE, or have blocked some.
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  // An error number.
  int start(const char* program, std::vector<std::string> arguments, pid_t& child) const {
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    return ::posix_spawn(&child, program, &files_, &attributes_, argv.data(), environ);
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

// Readable once the child has ended.
FileDescriptor end_of(pid_t child) {
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
}

std::string exit_text(int status) {
  if (WIFSIGNALED(status)) return str_cat("it was ended by signal ", WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  return str_cat("it ended with exit code ", code,
                 code == kCannotRun ? ", which says that there is no such program" : "");
}

}  // namespace

PipeSource::PipeSource(const FileDescriptor& file, std::filesystem::path path,
                       const std::string& unpack, const SourceOptions& options)
    : path_(std::move(path)), command_(options.pipe_command), stop_(options.stop) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_unreadable(path_, errno);
  output_ = FileDescriptor(ends[0]);
  const FileDescriptor input(ends[1]);
  const SpawnSettings settings(file.get(), input.get());
  // The command's own lines: a comment or a here-document at its end must not swallow the rest.
  const std::string line = unpack.empty() ? command_ : str_cat(unpack, " | {\n", command_, "\n}");
  int error = settings.start("/bin/bash", {"bash", "-c", "set -o pipefail\n" + line}, child_);
  if (error == ENOENT) error = settings.start("/bin/sh", {"sh", "-c", line}, child_);
  if (error != 0) {
    child_ = 0;
    throw_error(ErrorCode::kInput, {.what = "the pipe command cannot be started",
                                    .where = "file " + path_.string(),
                                    .got = std::strerror(error),
                                    .fix = "check the limits on processes and memory"});
  }
}

PipeSource::~PipeSource() {
  output_.reset();
  if (child_ != 0) end_early();
}

void PipeSource::wait_for(int descriptor) const {
  std::array<pollfd, 2> waits = {pollfd{descriptor, POLLIN, 0},
                                 pollfd{stop_ != nullptr ? stop_->descriptor() : -1, POLLIN, 0}};
  while (::poll(waits.data(), waits.size(), -1) < 0 && errno == EINTR) {
  }
  if (waits[1].revents != 0) {
    throw_error(ErrorCode::kCancelled,
                {.what = "reading was stopped", .where = "file " + path_.string()});
  }
}

size_t PipeSource::read(std::span<char> into) {
  size_t got = 0;
  while (got < into.size() && output_) {
    wait_for(output_.get());
    const ssize_t count = ::read(output_.get(), into.data() + got, into.size() - got);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_unreadable(path_, errno);
    if (count == 0) output_.reset();
    got += static_cast<size_t>(count);
  }
  // What came before the failure counts, so it is told when there is no more.
  if (got == 0 && !into.empty()) expect_success();
  return got;
}

void PipeSource::expect_success() {
  if (child_ == 0) return;
  // It may have closed its output, and go on.
  const FileDescriptor end = end_of(child_);
  if (end) wait_for(end.get());
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  throw_error(ErrorCode::kInput,
              {.what = "the pipe command failed",
               .where = "file " + path_.string(),
               .expected = "exit code 0",
               .got = str_cat(exit_text(status), ": ", command_),
               .fix = str_cat("try it in a shell: (", command_, ") < ", path_.string())});
}

void PipeSource::end_early() {
  const FileDescriptor end = end_of(child_);
  ::kill(-child_, SIGTERM);
  pollfd wait = {end.get(), POLLIN, 0};
  // Where there are no such descriptors, there is no grace.
  if (end) ::poll(&wait, 1, kGraceMs);
  // What the shell started may outlive it; the group has its number until the shell was awaited.
  ::kill(-child_, SIGKILL);
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = 0;
}

}  // namespace fleet::fluid::data
