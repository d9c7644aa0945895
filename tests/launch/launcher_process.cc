#include "tests/launch/launcher_process.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"
#include "launch/log_file.h"
#include "launch/process/child.h"
#include "launch/process/process_tree.h"
#include "tests/testing/paths.h"

namespace fleet::launch::testing {
namespace {

bool readable_within(int fd, Duration limit) {
  pollfd entry{fd, POLLIN, 0};
  const auto wait_ms = std::chrono::ceil<milliseconds>(limit).count();
  return ::poll(&entry, 1, static_cast<int>(wait_ms)) > 0;
}

}  // namespace

Workplace::Workplace() {
  folder_ = ::testing::TempDir() + "/launch-XXXXXX";
  if (::mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp " << folder_;
  EXPECT_EQ(::mkfifo(path("mailbox").c_str(), 0600), 0);
  mailbox_ = FileDescriptor(::open(path("mailbox").c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
}

Workplace::~Workplace() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Workplace::script(const std::string& body) const {
  const std::string file = path("script.sh");
  std::ofstream(file) << "#!/bin/sh\n" << body << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  return file;
}

std::string Workplace::read(const std::string& name) const {
  std::ifstream file(path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string Workplace::next_message(Duration limit) {
  size_t end = 0;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    char bytes[4096];
    if (!readable_within(mailbox_.get(), limit)) {
      ADD_FAILURE() << "no message in time";
      return "";
    }
    const ssize_t count = ::read(mailbox_.get(), bytes, sizeof(bytes));
    if (count > 0) buffer_.append(bytes, static_cast<size_t>(count));
  }
  const std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  return line;
}

std::map<std::string, std::string> Workplace::messages(size_t count) {
  std::map<std::string, std::string> found;
  for (size_t i = 0; i < count; ++i) {
    const std::string line = next_message();
    const size_t space = line.find(' ');
    if (space == std::string::npos) return found;
    found[line.substr(0, space)] = line.substr(space + 1);
  }
  return found;
}

LauncherProcess::LauncherProcess(const Workplace& workplace, const std::string& name,
                                 std::vector<std::string> arguments, const Environment& extra,
                                 int terminal)
    : workplace_(workplace) {
  const FileDescriptor output = open_log(workplace.path("output"), true);
  arguments.insert(arguments.begin(), {name, "--log_dir", workplace.path("logs")});
  Environment environment({{"PATH", Environment::of_process().get("PATH").value_or("/usr/bin")},
                           {"MAILBOX", workplace.path("mailbox")}});
  for (const char* option : {"ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"}) {
    if (const auto value = Environment::of_process().get(option)) environment.set(option, *value);
  }
  for (const auto& [key, value] : extra.all()) environment.set(key, value);
  pid_ = spawn_child({.program = fleet::testing::binary_path("bin/") + name,
                      .argv = arguments,
                      .environment = environment,
                      .output_fd = terminal >= 0 ? terminal : output.get(),
                      .passed_fd = -1,
                      .dies_with_parent = true});
}

LauncherProcess::~LauncherProcess() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void LauncherProcess::signal(int signal) const {
  ::kill(pid_, signal);
}

int LauncherProcess::wait(Duration limit) {
  if (!gone(pid_, limit)) {
    ADD_FAILURE() << "the launcher still runs; it said:\n" << output();
    return -1000;
  }
  int wait_status = 0;
  ::waitpid(pid_, &wait_status, 0);
  pid_ = 0;
  const ExitStatus status = exit_status_of(wait_status);
  return status.signal != 0 ? -status.signal : status.code;
}

void LauncherProcess::until(const std::string& text, Duration limit) const {
  const TimePoint end = steady_clock().now() + limit;
  bool over = false;
  while (output().find(text) == std::string::npos) {
    if (over || steady_clock().now() >= end) {
      ADD_FAILURE() << "never said: " << text << "\n" << output();
      return;
    }
    over = gone(pid_, milliseconds(5));
  }
}

bool gone(pid_t pid, Duration limit) {
  if (pid <= 0) return false;
  const FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!handle) return errno == ESRCH;
  return readable_within(handle.get(), limit);
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream file(str_cat("/proc/", pid, "/task/", pid, "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

pid_t to_pid(const std::string& text) {
  return static_cast<pid_t>(parse_int(trim(text)).value_or(0));
}

}  // namespace fleet::launch::testing
