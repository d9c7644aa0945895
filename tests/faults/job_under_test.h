// A job of real processes that a test may hit: who is who, and whether they are all gone.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace fleet::testing {

using Seconds = std::chrono::duration<double>;

// Starts build/bin/<launcher> with the quick start's trainer; its output goes to <folder>/output.
// The destructor kills whatever is left.
class JobUnderTest {
 public:
  struct Plan {
    bool servers = true;    // launch_ps with 2 workers and 2 servers, or launch with 2 ranks
    bool over_mpi = true;   // of ranks; else they share memory,
    bool over_tcp = false;  // or not
    int steps = 100000;
    int heartbeat_timeout_ms = 2000;
  };

  JobUnderTest(const Plan& plan, std::string folder);
  ~JobUnderTest();
  JobUnderTest(const JobUnderTest&) = delete;
  JobUnderTest& operator=(const JobUnderTest&) = delete;

  pid_t launcher() const { return launcher_; }
  // Trainers, servers and agents by name, "worker 1", "server 0", "agent 1", as far as they run.
  std::map<std::string, pid_t> members();
  // Waits until that member runs; 0 when it does not come, or the launcher ended.
  pid_t wait_for_member(const std::string& name, Seconds limit);
  // Waits until the first worker has said that it trains.
  bool wait_until_training(Seconds limit);

  // Remembers all processes of the job, to be asked for by all_gone.
  void remember_processes();
  // Whether the launcher and every remembered process has ended, waiting at most `limit`.
  bool all_gone(Seconds limit);
  // The launcher's exit code, or 128 + signal; -1 while it runs.
  int exit_code();
  std::string output() const;
  std::string logs() const;

 private:
  std::vector<pid_t> descendants() const;

  std::string folder_;
  pid_t launcher_ = 0;
  int status_ = -1;
  bool reaped_ = false;
  std::map<pid_t, std::string> remembered_;  // with the start time, so that pids are not confused
};

}  // namespace fleet::testing
