// One launcher on each of several hosts, started from here over ssh: `launch --hosts a,b`.
#pragma once

#include "base/environment.h"
#include "launch/command_line.h"
#include "launch/console.h"

namespace fleet::launch {

// Behind this stand reports of a launcher that was started with --orders_from_stdin, among the
// lines on its stdout. Its stdin has orders, a line each.
constexpr const char* kReportMark = "fleet-report ";

// Starts the same launcher on each of line.hosts, in this working directory and at this program's
// own path there, decides for all of them (Director), and passes on what they write, each line with
// its host. Variables FLEET_*, FLAGS_* and a few others go on their command line, a job's secret
// over their stdin: the environment's, or a new one for each attempt. The end of their stdin ends
// them, however this process ends. With line.restarts a host that was lost is reached for anew.
//
// Returns the director's exit code. Throws UsageError or ResourceError before anything runs.
int run_on_hosts(const CommandLine& line, const Environment& environment, Console& console);

}  // namespace fleet::launch
