// Jobs of real processes in the background, and how tests find those.
#pragma once

#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace fleet::testing {

inline std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

// A launcher in the background; ended with the test.
class Launched {
 public:
  explicit Launched(const std::string& command, const std::filesystem::path& output) {
    const std::string text = "exec " + command + " > " + output.string() + " 2>&1 < /dev/null";
    const char* arguments[] = {"sh", "-c", text.c_str(), nullptr};
    if (posix_spawn(&pid_, "/bin/sh", nullptr, nullptr, const_cast<char**>(arguments), environ) !=
        0) {
      ADD_FAILURE() << "posix_spawn";
    }
  }
  ~Launched() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  pid_t pid() const { return pid_; }
  bool ended() {
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) take(status);
    return pid_ == 0;
  }
  int wait() {
    int status = 0;
    if (pid_ > 0 && waitpid(pid_, &status, 0) == pid_) take(status);
    return code_;
  }

 private:
  void take(int status) {
    pid_ = 0;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  pid_t pid_ = 0;
  int code_ = -1;
};

// Processes whose command line has the one text, and whose command line or environment the other.
inline std::vector<pid_t> processes_of(const std::string& mark, const std::string& other) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string command = text_of(entry.path() / "cmdline");
    if (command.find(mark) == std::string::npos) continue;
    if ((command + text_of(entry.path() / "environ")).find(other) == std::string::npos) continue;
    found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace fleet::testing
