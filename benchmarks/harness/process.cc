#include "benchmarks/harness/process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <set>
#include <spawn.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

std::string_view name_in(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

// For calls that take an array of texts, closed by a null pointer.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

int milliseconds_until(Clock::time_point deadline) {
  if (deadline == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

// Reads what the process prints until it has ended; what others to whom it gave its output print
// later is not waited for. False at the deadline.
bool read_to_end(pid_t process, int fd, Clock::time_point deadline, std::string& text) {
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
  std::array<pollfd, 2> polled = {pollfd{fd, POLLIN, 0}, pollfd{ended, POLLIN, 0}};
  int ready = 1;
  while (ready > 0) {
    do {
      ready = poll(polled.data(), polled.size(), milliseconds_until(deadline));
    } while (ready < 0 && errno == EINTR);
    if (polled[0].revents != 0) {
      char block[4096];
      const ssize_t n = read(fd, block, sizeof block);
      if (n > 0) {
        text.append(block, static_cast<size_t>(n));
        continue;
      }
      polled[0].fd = -1;
    }
    if (polled[1].revents != 0 || (ended < 0 && polled[0].fd < 0)) break;
  }
  if (ended >= 0) close(ended);
  return ready > 0;
}

std::string whole_of(int file) {
  std::string text;
  char block[4096];
  ssize_t n = 0;
  while ((n = pread(file, block, sizeof block, static_cast<off_t>(text.size()))) > 0) {
    text.append(block, static_cast<size_t>(n));
  }
  return text;
}

// What a program said last, for a message.
std::string last_words(const std::string& text) {
  constexpr size_t kMost = 1000;
  const std::string_view words = trim(text);
  if (words.size() <= kMost) return std::string(words);
  return str_cat("…", words.substr(words.find('\n', words.size() - kMost) + 1));
}

// Of /proc/PROCESS/stat; 0 when it has gone.
pid_t parent_of(const std::string& process) {
  std::ifstream file(str_cat("/proc/", process, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string state;
  pid_t parent = 0;
  fields >> state >> parent;
  return parent;
}

// A process and all that it started, those whose parents still live.
std::set<pid_t> family_of(pid_t root) {
  std::vector<std::pair<pid_t, pid_t>> processes;  // with their parents
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (const auto number = parse_int(name)) {
      processes.emplace_back(static_cast<pid_t>(*number), parent_of(name));
    }
  }
  std::set<pid_t> family = {root};
  for (size_t before = 0; before != family.size();) {
    before = family.size();
    for (const auto& [process, parent] : processes) {
      if (family.contains(parent)) family.insert(process);
    }
  }
  return family;
}

// Stopped first, so that none starts another one meanwhile.
void kill_family(pid_t root) {
  std::set<pid_t> stopped;
  for (std::set<pid_t> family = family_of(root); family != stopped; family = family_of(root)) {
    for (const pid_t process : family) {
      if (process != getpid()) kill(process, SIGSTOP);
    }
    stopped = std::move(family);
  }
  stopped.erase(getpid());
  for (const pid_t process : stopped) kill(process, SIGKILL);
}

}  // namespace

std::string program_folder() {
  char path[4096];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, n > 0 ? static_cast<size_t>(n) : 0);
  return whole.substr(0, whole.rfind('/'));
}

std::vector<std::string> changed_environment(const std::vector<std::string>& given,
                                             const std::vector<std::string>& changes) {
  std::vector<std::string> result;
  for (const std::string& entry : given) {
    const bool replaced = std::any_of(changes.begin(), changes.end(), [&](const auto& change) {
      return name_in(change) == name_in(entry);
    });
    if (!replaced) result.push_back(entry);
  }
  result.insert(result.end(), changes.begin(), changes.end());
  return result;
}

ProcessResult run_process(const std::vector<std::string>& argv,
                          const std::vector<std::string>& environment, double limit_s) {
  int out[2];
  const int errors = memfd_create("errors", MFD_CLOEXEC);
  if (errors < 0 || pipe2(out, O_CLOEXEC) != 0) {
    throw_error(ErrorCode::kInput, {.what = "no pipe"});
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  const std::vector<std::string> entries = changed_environment(own_environment(), environment);

  const auto start = Clock::now();
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0].c_str(), &actions, nullptr, pointers_to(argv).data(),
                                 pointers_to(entries).data());
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  if (error != 0) {
    close(out[0]);
    close(errors);
    throw_error(ErrorCode::kInput, {.what = "a program does not start", .where = argv[0]});
  }
  ProcessResult result;
  const auto deadline = limit_s == kNoLimit ? Clock::time_point::max()
                                            : start + std::chrono::duration_cast<Clock::duration>(
                                                          std::chrono::duration<double>(limit_s));
  result.timed_out = !read_to_end(pid, out[0], deadline, result.output);
  if (result.timed_out) kill_family(pid);
  close(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  result.errors = whole_of(errors);
  close(errors);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

BackgroundProcess::BackgroundProcess(const std::vector<std::string>& argv,
                                     const std::vector<std::string>& environment,
                                     const std::string& output, double grace_s)
    : grace_s_(grace_s) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  const std::vector<std::string> entries = changed_environment(own_environment(), environment);
  const int error = posix_spawnp(&pid_, argv[0].c_str(), &actions, nullptr,
                                 pointers_to(argv).data(), pointers_to(entries).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw_error(ErrorCode::kInput, {.what = "a program does not start", .where = argv[0]});
  }
}

BackgroundProcess::~BackgroundProcess() {
  if (!running()) return;
  kill(pid_, SIGTERM);
  const auto end = Clock::now() + std::chrono::duration<double>(grace_s_);
  while (running() && Clock::now() < end) usleep(1000);
  if (pid_ == 0) return;
  kill_family(pid_);
  waitpid(pid_, nullptr, 0);
}

bool BackgroundProcess::running() {
  if (pid_ != 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
  return pid_ != 0;
}

void inherit_orphans() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void end_all_children() {
  kill_family(getpid());
  while (waitpid(-1, nullptr, 0) > 0) {
  }
}

ProcessResult run_to_success(const std::vector<std::string>& argv,
                             const std::vector<std::string>& environment) {
  ProcessResult result = run_process(argv, environment);
  if (result.exit_code == 0) return result;
  throw_error(ErrorCode::kInternal,
              {.what = "a program failed",
               .where = join(argv, " "),
               .got = str_cat("exit code ", result.exit_code, "\n", last_words(result.errors))});
}

}  // namespace fleet::benchmarks
