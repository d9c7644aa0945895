// Finding and ending whatever processes a job has left, by /proc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/clock.h"

namespace fleet::launch {

// Every process that descends from `root` (not itself) and has not ended. A caller that is a child
// subreaper (PR_SET_CHILD_SUBREAPER) so finds its children's orphans too.
std::vector<pid_t> descendants_of(pid_t root);

// Every process of this user whose environment held `assignment` ("NAME=value") when it was
// started, and every descendant of such a process.
std::vector<pid_t> marked_processes(std::string_view assignment);

// What the variable was when the process started; empty when it was not set, or is not known.
std::string variable_of(pid_t pid, std::string_view name);

// 'R', 'S', 'T' (stopped) …, or 0 when there is no such process.
char process_state(pid_t pid);

// A pid means another process once its own has ended; the start time tells the two apart.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start = 0;  // in clock ticks since the machine started; 0: there was no such process
};
ProcessId identify(pid_t pid);
// Sends SIGKILL, unless the process has ended, whoever has its pid by now.
void kill_process(const ProcessId& process);

// Sends SIGKILL to all descendants but `spared` until there are none, reaping the caller's own
// children; at most for `limit`. Returns the processes that are left.
std::vector<pid_t> kill_descendants(Duration limit, pid_t spared = -1);

// The same for marked processes, which need not be children.
std::vector<pid_t> kill_marked(std::string_view assignment, Duration limit);

}  // namespace fleet::launch
