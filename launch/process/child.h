// Starting one process, and saying how one ended.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "base/environment.h"

namespace fleet::launch {

struct ExitStatus {
  int code = 0;
  int signal = 0;  // the signal that killed it, or 0
  bool core_dumped = false;

  bool ok() const { return code == 0 && signal == 0; }
  // "failed with exit code 3", "was killed by SIGSEGV", "ended with exit code 0".
  std::string to_string() const;
};
ExitStatus exit_status_of(int wait_status);
std::string signal_name(int signal);  // "SIGKILL", "signal 60"

struct ChildOptions {
  std::string program;            // the file, found by find_program()
  std::vector<std::string> argv;  // argv[0] included
  Environment environment;        // the child's whole environment
  int input_fd = -1;              // its stdin; -1: /dev/null
  int output_fd = -1;             // its stdout and stderr; -1: /dev/null
  int error_fd = -1;              // its stderr; -1: as its stdout
  int passed_fd = -1;             // kept open in the child as descriptor kPassedFd; -1: none
  bool dies_with_parent = true;   // SIGKILL when the calling thread ends, however it ends
};
constexpr int kPassedFd = 3;

// Starts the program in a session of its own (its process group is its pid) with default signal
// handling, and no descriptor of ours but those named. Throws ResourceError when the file cannot be
// run.
pid_t spawn_child(const ChildOptions& options);

// The file that a shell would run for `name`: a path, or a name looked up in PATH. Throws
// UsageError that names the path and the fix when it is missing or not executable.
std::string find_program(const std::string& name, const Environment& environment);

// A file beside this program, such as the agent. Throws ResourceError when it is not there.
std::string find_companion(const std::string& name);

}  // namespace fleet::launch
