#include "launch/process/process_tree.h"

#include <atomic>
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

}  // namespace
}  // namespace fleet::launch
