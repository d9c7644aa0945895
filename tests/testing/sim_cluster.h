// A parameter-server job in one thread under virtual time: the nodes are those of real processes,
// the network is a simulated world, and one seed decides everything that happens. Workers run a
// toy model whose gradients depend on the values that they received, so that a wrong value
// anywhere shows in every later one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/sim_job.h"
#include "transport/sim/sim_loop.h"

namespace fleet::testing {

struct SimOutcome {
  // What went wrong first, or nothing.
  std::string failure;
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  uint64_t lost_lanes = 0;  // connections that broke under a server
  // Virtual time of a step, from the first one's begin to the last one's end: the slowest worker's.
  Duration step_time{0};
  // The values of all slices after the last step, in slice order.
  std::vector<std::vector<float>> values;

  bool ok() const { return failure.empty(); }
};

// Runs the job to its end and compares every value that any worker receives, after every step, bit
// by bit with those of sequential arithmetic.
SimOutcome run_job(const SimJob& job);

// A process that dies (kill -9) or stands still (SIGSTOP).
struct SimFault {
  enum class Kind { kKill, kPause };
  Kind kind = Kind::kKill;
  bool server = false;
  uint32_t index = 0;
  Duration moment{0};  // from the start

  std::string victim() const { return (server ? "server " : "worker ") + std::to_string(index); }
};

struct SimFaultOutcome {
  bool came_too_late = false;  // the job was over before
  // What every other process says, by its name; empty for one that never noticed.
  std::vector<std::pair<std::string, std::string>> survivors;
  // From the fault until the last survivor knew.
  Duration detection{0};
};

SimFaultOutcome run_job_with_fault(const SimJob& job, const SimFault& fault);

}  // namespace fleet::testing
