// Runs a shell command to its end.
#pragma once

#include <cstdio>
#include <string>
#include <sys/wait.h>

namespace fleet::testing {

struct CommandResult {
  int code = -1;       // exit code, or 128 + signal
  std::string output;  // stdout and stderr
};

// Ended after `limit_s`, which then gives code 124.
inline CommandResult run_command(const std::string& command, int limit_s = 60) {
  const std::string bounded =
      "timeout -k 5 " + std::to_string(limit_s) + " sh -c '" + command + "' 2>&1 < /dev/null";
  CommandResult result;
  FILE* pipe = popen(bounded.c_str(), "r");
  if (pipe == nullptr) return result;
  char block[4096];
  for (size_t n = fread(block, 1, sizeof block, pipe); n > 0;
       n = fread(block, 1, sizeof block, pipe)) {
    result.output.append(block, n);
  }
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace fleet::testing
