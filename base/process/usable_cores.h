// Which cores a process has, and which of them are its own among the processes of its job.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"

namespace fleet {

// The cores that this process may use at once: those it may run on, or fewer by the CPU quota of
// its control groups, of version 2 (containers, Kubernetes' limits); 1 when nothing says.
int usable_cores();

struct Cores {
  std::vector<int> usable;  // numbers of those that this process may run on
  int quota = 0;            // how many may be busy at once; 0: no limit
  int of_machine = 0;

  static Cores of_process();
  int count() const;
};

// What a process of a job has of the cores that it shares with the job's other processes.
struct CoreShare {
  int count = 1;
  // Which they are; empty where that is not known: one of several processes that were bound to some
  // cores, or a quota.
  std::vector<int> cores = {};
};

// The cores divided by the job's processes that may run on the same ones, as the environment tells:
// FLEET_LOCAL_PROCESSES and FLEET_LOCAL_INDEX, which launchers set; torchrun's; Open MPI's and
// Slurm's, which bind processes to cores themselves; PADDLE_TRAINER_ENDPOINTS. Where nothing tells,
// a process is alone.
CoreShare core_share(const Environment& environment, const Cores& cores);

// The quota that a file cpu.max of a control group says ("150000 100000" is 1), 0 for none.
int quota_of(const std::string& cpu_max);

}  // namespace fleet
