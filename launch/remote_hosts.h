// One launcher on each of several hosts, started from here over ssh: `launch --hosts a,b`.
#pragma once

#include "base/environment.h"
#include "launch/command_line.h"
#include "launch/console.h"

namespace fleet::launch {

// Starts the same launcher on each of line.hosts, in this working directory and at this program's
// own path there, and passes on what they write, each line with its host. They are told the job's
// secret over their stdin, made here where the environment has none, and variables FLEET_*, FLAGS_*
// and a few others. The end of their stdin ends them, however this process ends.
//
// Returns 0 when all have ended with 0; 1 when one failed: the others have then
// line.supervision.heartbeat_timeout to say why; 128 + signal when SIGINT, SIGTERM or SIGHUP ended
// the job. A second signal does not wait. Throws UsageError or ResourceError before anything runs.
int run_on_hosts(const CommandLine& line, const Environment& environment, Console& console);

}  // namespace fleet::launch
