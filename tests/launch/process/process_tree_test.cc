#include "launch/process/process_tree.h"

#include <atomic>
#include <csignal>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fleet::launch {
namespace {

// Starts processes that end at once, for as long as it lives.
class ShortLived {
 public:
  ShortLived() : thread_([this] { run(); }) {}
  ~ShortLived() {
    over_ = true;
    thread_.join();
  }
  ShortLived(const ShortLived&) = delete;
  ShortLived& operator=(const ShortLived&) = delete;

 private:
  void run() const {
    char name[] = "true";
    char* arguments[] = {name, nullptr};
    while (!over_) {
      pid_t pid = 0;
      if (posix_spawn(&pid, "/bin/true", nullptr, nullptr, arguments, environ) != 0) continue;
      waitpid(pid, nullptr, 0);
    }
  }

  std::atomic<bool> over_{false};
  std::thread thread_;
};

// A process may end between the opening of its files in /proc and their reading.
TEST(ProcessTree, ReadsOfProcessesThatEndMeanwhile) {
  const ShortLived others;
  for (int i = 0; i < 3000; ++i) {
    for (const pid_t pid : descendants_of(getpid())) {
      EXPECT_NO_THROW(variable_of(pid, "PATH"));
    }
    EXPECT_TRUE(marked_processes("FLEET_NO_PROCESS_HAS_THIS=1").empty());
  }
}

// A pid that is another process's by now.
TEST(ProcessTree, WhoHasThePidOfAProcessThatEndedIsSpared) {
  char name[] = "sleep";
  char time[] = "1000";
  char* arguments[] = {name, time, nullptr};
  pid_t pid = 0;
  ASSERT_EQ(posix_spawn(&pid, "/bin/sleep", nullptr, nullptr, arguments, environ), 0);
  const ProcessId own = identify(pid);
  ASSERT_NE(own.start, 0U);
  kill_process({.pid = pid, .start = own.start - 1});
  kill_process({.pid = pid, .start = 0});
  EXPECT_EQ(kill(pid, 0), 0);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, WNOHANG), 0) << "it was killed";
  kill_process(own);
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace fleet::launch
