// Runs measured_worker as a job of several processes and reads what they reported.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/harness/temporary_folder.h"

namespace fleet::benchmarks {

struct JobShape {
  std::string launcher = "launch_ps";      // or "launch"; empty: one process alone
  std::vector<std::string> launcher_args;  // {"--worker_num", "2", …}
  int workers = 2;
  int servers = 0;
  int steps = 100;
  int rows = 32;  // of each worker
  int inputs = 32;
  int hidden = 128;
  std::string optimizer = "sgd";  // or "momentum", "dgc"
  std::string net;  // of benchmarks/nets.h; empty: inputs, two hidden layers and 2 classes
  int sleep_ms = 0;
  int threads = 1;                       // of each worker
  int warm_up = 20;                      // steps that are not measured
  std::string checkpoints;               // their folder; empty: none
  int checkpoint_every = 0;              // steps
  int saves = 0;                         // checkpoints, written and read before the steps
  bool step_times = false;               // are reported
  std::string strategy;                  // of measured_worker; empty: the default
  std::vector<std::string> environment;  // "NAME=value", besides this process's

  static JobShape parameter_servers(int workers, int servers, int steps);
  static JobShape ranks(int ranks, int steps);
  static JobShape alone(int steps);

  JobShape with(std::string of_strategy, int of_threads = 1) const;
};

struct JobResult {
  double seconds = 0;          // from start to end of the whole job
  double steps_per_s = 0;      // of the slowest worker
  double worker_cpu_us = 0;    // mean, a step
  double server_cpu_us = 0;    // mean over servers, a step of one worker
  double server_peak_mb = 0;   // of the largest
  double servers_peak_mb = 0;  // of all of them together
  // What their growing tables say that they take; of jobs with "--json" for the launcher.
  double servers_table_mb = 0;
  double save_s = 0;  // median of a checkpoint, of the slowest worker
  double load_s = 0;
  std::vector<double> step_times;  // seconds at which each step of the first worker began and ended
};

// Throws when the job fails.
JobResult run_job(const JobShape& shape);
// The same job `count` times at once: the steps per second of the slowest.
double steps_per_s_side_by_side(const JobShape& shape, int count);

// The flags of measured_worker.
std::vector<std::string> worker_command(const JobShape& shape, const std::string& report);
// Of the whole job: logs and reports go to the folder.
std::vector<std::string> job_command(const JobShape& shape, const TemporaryFolder& folder);
// Reads what worker_command's processes wrote.
JobResult read_reports(const JobShape& shape, const std::string& report);

}  // namespace fleet::benchmarks
