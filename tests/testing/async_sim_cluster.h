// An asynchronous parameter-server job in one thread under virtual time: the nodes are those of
// real processes, the network is a simulated world, and one seed decides everything that happens.
// Servers keep the order of what they did, and the job is played again from it by sequential
// arithmetic: every value that any worker received, and what the servers end with, must be the
// very bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "strategies/parameter_server/protocol/async_server.h"
#include "tests/testing/async_sim_job.h"

namespace fleet::testing {

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
