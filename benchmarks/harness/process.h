// Runs other programs of the build, and peers.
#pragma once

#include <limits>
#include <string>
#include <vector>

namespace fleet::benchmarks {

// The folder of this program, where the other programs of the build are.
std::string program_folder();

struct ProcessResult {
  int exit_code = 0;
  bool timed_out = false;
  double seconds = 0;
  std::string output;  // stdout
  std::string errors;  // stderr
};

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Runs a program to its end. Entries of `environment` are "NAME=value": they take the place of what
// this process has under that name. A program that is not done after `limit_s` seconds is killed
// with all processes that it started. Throws when the program does not start.
ProcessResult run_process(const std::vector<std::string>& argv,
                          const std::vector<std::string>& environment = {},
                          double limit_s = kNoLimit);

// A program that runs beside this one. It is asked to end with its owner (SIGTERM), and killed with
// all that it started where it does not do so in time.
class BackgroundProcess {
 public:
  // What it prints goes to the file. Throws when it does not start.
  BackgroundProcess(const std::vector<std::string>& argv,
                    const std::vector<std::string>& environment, const std::string& output,
                    double grace_s = 10);
  ~BackgroundProcess();
  BackgroundProcess(const BackgroundProcess&) = delete;
  BackgroundProcess& operator=(const BackgroundProcess&) = delete;

  bool running();

 private:
  const double grace_s_;
  int pid_ = 0;  // 0: its end was seen
};

// Processes below this one that lose their parent become its own children.
void inherit_orphans();
// Kills every process below this one, and waits for their ends.
void end_all_children();

// The same as run_process, and throws when its exit code is not 0.
ProcessResult run_to_success(const std::vector<std::string>& argv,
                             const std::vector<std::string>& environment = {});

// `given` ("NAME=value" each) with `changes` in the place of entries of the same name.
std::vector<std::string> changed_environment(const std::vector<std::string>& given,
                                             const std::vector<std::string>& changes);

}  // namespace fleet::benchmarks
