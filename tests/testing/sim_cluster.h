// A parameter-server job in one thread under virtual time: the nodes are those of real processes,
// the network is a simulated world, and one seed decides everything that happens. Workers run a
// toy model whose gradients depend on the values that they received, so that a wrong value
// anywhere shows in every later one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategies/parameter_server/config.h"
#include "transport/sim/sim_loop.h"

namespace fleet::testing {

struct SimJob {
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint32_t shards = 0;  // 0: one for each worker
  uint32_t lanes = 1;
  uint64_t steps = 5;
  // Steps of single workers, by index, where they differ from `steps`.
  std::vector<uint64_t> uneven_steps;
  // Elements of each slice; slice i lives on server i modulo the number of servers that keep any.
  std::vector<size_t> slices{3, 7, 1, 5, 2};
  bool last_server_empty = false;
  // Of a step, at most 2: numbers of two slices in three that all servers need for their updates.
  uint32_t exchanges = 0;
  // One slice in three takes gradients of rows of one element, some of them by each shard.
  bool rows = false;
  size_t flush_bytes = 64 * 1024;
  // What a worker's step takes before the first gradient is there.
  Duration compute{0};
  transport::SimFaults faults;
  strategies::ProtocolMutations mutations;
  // Links are cut often in a bad network, and every cut is to be healed.
  Duration reconnect_grace = std::chrono::seconds(30);
  Duration heartbeat_timeout = std::chrono::seconds(60);
  uint64_t seed = 0;

  uint32_t shard_count() const { return shards == 0 ? workers : shards; }
  std::string to_string() const;
};

// A job whose shape, sizes and faults are drawn from the seed.
SimJob draw_job(uint64_t seed);

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

// The values that sequential arithmetic gives, by step (0: the initial ones) and slice.
std::vector<std::vector<std::vector<float>>> reference_values(const SimJob& job);

}  // namespace fleet::testing
