// What a simulated parameter-server job is: its shape, its sizes and its faults.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/protocol/sync_server_rules.h"
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
  // One slice in three takes sparse gradients of one element, some of them by each shard.
  bool rows = false;
  // Of those, in some steps, some workers have no gradient.
  bool skips_rows = false;
  size_t flush_bytes = 64 * 1024;
  size_t separate_get_bytes = 1024 * 1024;
  // What a worker's step takes before the first gradient is there.
  Duration compute{0};
  int straggle = 1;  // worker 0 is so many times slower
  transport::SimFaults faults;
  std::shared_ptr<const strategies::SyncServerRules> rules;  // null: the right ones
  uint64_t window_bytes = uint64_t{32} * 1024 * 1024;        // of a server's gradients
  // Links are cut often in a bad network, and every cut is to be healed.
  Duration reconnect_grace = std::chrono::seconds(30);
  Duration heartbeat_timeout = std::chrono::seconds(60);
  uint64_t seed = 0;

  uint32_t shard_count() const { return shards == 0 ? workers : shards; }
  std::string to_string() const;
};

// A job whose shape, sizes and faults are drawn from the seed.
SimJob draw_job(uint64_t seed);

}  // namespace fleet::testing
