// Synchronous training without servers: every step, the workers add up their gradients among
// themselves and each updates its own copy of the parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fluid/mixed_precision/options.h"
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
  // How gradients on GPUs are summed: "ordered" (by NCCL, along the tree of shards, with the same
  // bits at any number of ranks), "fast" (by ncclAllReduce, in an order of its own), or "host" (in
  // host memory, with the bits of "ordered"). Where a rank has no NCCL, and with 16 bits on the
  // wire, it is host memory, and a line of the log says so. Of gradients on the CPU it says
  // nothing.
  std::string device_sums = "ordered";
  // Batch norms take the mean and the variance of all rows of a step, not of a shard's
  // (fluid/ops/nn/sync_batch_norm.h). The shards of a worker then keep their values until all of
  // them have come so far.
  bool sync_batch_norm = false;
  // Variables of the forward part that backward keeps, in the order of the program; it computes
  // what lies between them again, to the same bits, and a step takes less memory. None: it keeps
  // all.
  std::vector<std::string> recompute_checkpoints = {};
  // Mixed precision: the optimizer trains as if mixed_precision::decorate had been given it and
  // these options. The ranks decide together which steps are skipped.
  std::optional<fluid::mixed_precision::Options> amp = {};
  // Communicators of NCCL that take turns, bucket by bucket.
  int nccl_comm_num = 1;
  // By NCCL, groups of hierarchical_allreduce_inter_nranks ranks, 0: those of a machine, sum among
  // themselves first, and their first ranks with each other. Ordered sums keep their bits: where
  // the shards of groups are no node of the shard tree, all ranks sum at once, and a line of the
  // log says so. Over host memory all ranks are one communicator, and a line of the log says so:
  // ranks of a machine share memory there.
  bool use_hierarchical_allreduce = false;
  int hierarchical_allreduce_inter_nranks = 0;

  std::shared_ptr<const Strategy> make() const;
};

// The word of Paddle's documents.
using ReduceGradStrategy = GradAllReduceStrategy;

}  // namespace fleet::strategies
