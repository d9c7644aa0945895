#include "benchmarks/harness/process.h"

#include <algorithm>
#include <chrono>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

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

std::string read_to_end(int fd) {
  std::string text;
  char block[4096];
  for (ssize_t n = read(fd, block, sizeof block); n > 0; n = read(fd, block, sizeof block)) {
    text.append(block, static_cast<size_t>(n));
  }
  return text;
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
                          const std::vector<std::string>& environment) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) throw_error(ErrorCode::kInput, {.what = "no pipe"});
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  const std::vector<std::string> entries = changed_environment(own_environment(), environment);

  const auto start = Clock::now();
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0].c_str(), &actions, nullptr, pointers_to(argv).data(),
                                 pointers_to(entries).data());
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  if (error != 0) {
    close(out[0]);
    throw_error(ErrorCode::kInput, {.what = "a program does not start", .where = argv[0]});
  }
  ProcessResult result;
  result.output = read_to_end(out[0]);
  close(out[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

ProcessResult run_to_success(const std::vector<std::string>& argv,
                             const std::vector<std::string>& environment) {
  ProcessResult result = run_process(argv, environment);
  if (result.exit_code == 0) return result;
  throw_error(ErrorCode::kInternal, {.what = "a program failed",
                                     .where = join(argv, " "),
                                     .got = str_cat("exit code ", result.exit_code)});
}

}  // namespace fleet::benchmarks
