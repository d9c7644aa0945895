// The launcher of one of several hosts, each started by hand, in a job that may be started again.
#pragma once

#include "base/environment.h"
#include "launch/command_line.h"
#include "launch/console.h"
#include "launch/hosts/host_runs.h"

namespace fleet::launch {

// What the launcher runs on its own host.
struct HostPart {
  HostRuns::Factory make;
  int workers = 0;
  SupervisorOptions supervision;
};

// The launcher of the first node decides for all (Director) and tells the progress; the others meet
// it at line.launcher_port there. Returns the exit code, the same on every node. Throws when the
// port is taken, or there is no secret.
int run_by_hand(const CommandLine& line, const Environment& environment, const HostPart& part,
                EventLoop& loop, Console& console);

}  // namespace fleet::launch
