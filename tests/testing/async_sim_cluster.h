// An asynchronous parameter-server job in one thread under virtual time: the nodes are those of
// real processes, the network is a simulated world, and one seed decides everything that happens.
// Servers keep the order of what they did, and the job is played again from it by sequential
// arithmetic: every value that any worker received, and what the servers end with, must be the
// very bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategies/parameter_server/asynchronous/async_options.h"
#include "strategies/parameter_server/asynchronous/async_server.h"
#include "strategies/parameter_server/config.h"
#include "transport/sim/sim_loop.h"

namespace fleet::testing {

struct AsyncSimJob {
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint32_t lanes = 1;
  uint64_t steps = 6;
  // Steps of single workers, by index, where they differ from `steps`.
  std::vector<uint64_t> uneven_steps;
  // Elements of each variable; odd ones are cut into two slices. Slices are dealt to the servers.
  std::vector<size_t> variables{3, 8, 1, 6};
  strategies::AsyncOptions options;
  // Compute time of a step: between half of this and one and a half; worker 0 is `straggle` times
  // slower.
  Duration compute = std::chrono::microseconds(200);
  int straggle = 1;
  // Chance in a thousand that a step of any worker takes ten times as long.
  uint64_t stalls = 0;
  transport::SimFaults faults;
  strategies::ProtocolMutations mutations;
  Duration reconnect_grace = std::chrono::seconds(30);
  Duration heartbeat_timeout = std::chrono::seconds(60);
  uint64_t seed = 0;

  std::string to_string() const;
};

// A job of the mode whose shape, sizes and faults are drawn from the seed.
AsyncSimJob draw_async_job(strategies::AsyncMode mode, uint64_t seed);

struct AsyncSimOutcome {
  std::string failure;  // what went wrong first, or nothing
  uint64_t trace_hash = 0;
  uint64_t lost_lanes = 0;  // connections that broke under a server
  uint64_t pushes = 0;      // over all workers
  Duration time{0};
  strategies::StalenessStatistics staleness;              // of server 0
  std::vector<std::vector<strategies::AsyncEvent>> logs;  // by server
  std::vector<std::vector<float>> values;                 // by variable, as the servers end
  std::vector<std::vector<std::vector<float>>> local;     // by worker and variable, as they end

  bool ok() const { return failure.empty(); }
};

AsyncSimOutcome run_async_job(const AsyncSimJob& job);

}  // namespace fleet::testing
