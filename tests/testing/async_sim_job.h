// What a simulated asynchronous job is: its shape, its sizes and its faults.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/protocol/async_server.h"
#include "transport/sim/sim_loop.h"

namespace fleet::testing {

struct AsyncSimJob {
  uint32_t workers = 2;
  uint32_t servers = 2;
  uint32_t lanes = 1;
  uint64_t steps = 6;
  // Steps of single workers, by index, where they differ from `steps`.
  std::vector<uint64_t> uneven_steps;
  // Elements of each variable; odd ones are cut into two slices. Slices are assigned to the
  // servers.
  std::vector<size_t> variables{3, 8, 1, 6};
  strategies::AsyncOptions options;
  // Compute time of a step: between half of this and one and a half; worker 0 is `straggle` times
  // slower.
  Duration compute = std::chrono::microseconds(200);
  int straggle = 1;
  // Chance in a thousand that a step of any worker takes ten times as long.
  uint64_t stalls = 0;
  transport::SimFaults faults;
  // Of every server; null: the right ones.
  std::shared_ptr<const strategies::AsyncServerRules> rules;
  Duration reconnect_grace = std::chrono::seconds(30);
  Duration heartbeat_timeout = std::chrono::seconds(60);
  uint64_t seed = 0;

  std::string to_string() const;
};

// A job of the mode whose shape, sizes and faults are drawn from the seed.
AsyncSimJob draw_async_job(fluid::ServerMode mode, uint64_t seed);

}  // namespace fleet::testing
