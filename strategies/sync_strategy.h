// Synchronous training through parameter servers: every step, the servers add up the gradients of
// all logical shards, divide, update, and every worker goes on with the new values.
#pragma once

#include <memory>
#include <string>

#include "strategies/config/fleet_runtime_config.h"
#include "strategies/strategy.h"
#include "transpiler/split_method.h"

namespace fleet::strategies {

struct SyncStrategy {
  // Equal parts that a step's rows are cut into; 0: one for each worker. The result of a step does
  // not depend on how many workers compute them.
  int logical_shards = 0;
  // Gradient merge: parts of a worker's batch that run one after the other, whose gradients are
  // averaged before they are sent; the rows of a feed must divide by it. The memory of a step is
  // that of one part. It is logical_shards = workers * gradient_merge.
  int gradient_merge = 1;
  // Cut parameters into slices of whole rows, so that servers share the work.
  bool slice_var_up = true;
  // Elements; a parameter is not cut into slices smaller than this. At least 8192.
  int min_block_size = 8192;
  // Of a dense parameter, where min_block_size allows so many. More than 1 pays over slow networks:
  // a slice's new value comes back while gradients of others still leave.
  int slices_per_server = 1;
  // Which server a slice goes to (transpiler/split_method.h).
  transpiler::SplitMethod split_method = "RoundRobin";
  // send and recv carry whole variables and the runtime cuts them.
  bool runtime_split_send_recv = false;
  TrainerRuntimeConfig trainer_runtime_config = {};
  ServerRuntimeConfig server_runtime_config = {};

  std::shared_ptr<const Strategy> make() const;
};

}  // namespace fleet::strategies
