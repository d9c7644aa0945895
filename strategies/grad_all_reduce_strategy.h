// Synchronous training without servers: every step, the workers add up their gradients among
// themselves and each updates its own copy of the parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "strategies/strategy.h"

namespace fleet::strategies {

struct GradAllReduceStrategy {
  // Equal parts that a step's rows are cut into; 0: one for each worker. The result of a step does
  // not depend on how many workers compute them.
  int logical_shards = 0;
  // Gradient merge: parts of a worker's batch that run one after the other, whose gradients are
  // averaged before they are exchanged; the rows of a feed must divide by it. The memory of a step
  // is that of one part. It is logical_shards = workers * gradient_merge.
  int gradient_merge = 1;
  // Gradients are fused into buckets of about this many bytes and reduced while backward runs.
  int64_t bucket_bytes = 1 << 20;
  // "float16" or "bfloat16": float32 gradients travel as such, in half the bytes, and are added up
  // in float. "float16" keeps 11 bits, and what is above 65 504 becomes infinite; "bfloat16" keeps
  // 8 bits and every magnitude. Parameters and updates stay float32; sparse gradients travel as
  // they are.
  std::string wire_dtype = "float32";
  // Communicators that take turns.
  int nccl_comm_num = 1;

  std::shared_ptr<const Strategy> make() const;
};

// The word of Paddle's documents.
using ReduceGradStrategy = GradAllReduceStrategy;

}  // namespace fleet::strategies
