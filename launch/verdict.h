// Which process is the cause of a job's failure, and how that is said.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "launch/host.h"
#include "launch/log_file.h"

namespace fleet::launch {

// What is known of one process of the job when it fails.
struct ProcessRecord {
  std::string title;  // "worker 1", "mpirun"
  std::string log_file;
  off_t log_begin = 0;       // where in it the process's own lines begin
  std::optional<Role> role;  // none for mpirun
  int index = 0;
  pid_t pid = 0;
  bool running = false;
  bool stopped = false;  // by SIGSTOP or the like
  // Whether it has taken leave of the others, as far as it has told of itself.
  std::optional<bool> completed;
  // Saves when it is told to end, as far as it has told of itself.
  bool saves = false;
  TimePoint started;
  TimePoint ended;
  Ending ending;
};

// It was told to end, and has saved what it can be started again with.
inline bool has_saved(const ProcessRecord& record) {
  return record.ending.reason.empty() && record.ending.status.signal == 0 &&
         record.ending.status.code == kExitRequeue;
}

struct Cause {
  size_t record = 0;
  std::string what;               // completes the record's title: "was killed by SIGKILL"
  std::optional<Blame> blame;     // what another process wrote about it
  std::optional<size_t> witness;  // which one
  // It failed by itself, as far as can be seen here: by a hard signal, or another one names it.
  bool sure = true;
};

// Chooses among the records that failed, given in the order in which that was seen. First comes a
// process that was killed by a signal that no library raises for an error, or that was lost or
// stuck; then the member that the failed ones name in their logs; then the first that failed,
// members before mpirun. `failed` is not empty.
Cause choose_cause(const std::vector<ProcessRecord>& records, const std::vector<size_t>& failed);

// The message: the cause, what a witness wrote, and the last log lines.
std::string explain(const Cause& cause, const std::vector<ProcessRecord>& records, TimePoint now);

}  // namespace fleet::launch
