// DistributedStrategy of Paddle Fluid's collective Fleet, with its field names and defaults; what
// it means here is GradAllReduceStrategy or LocalSgdStrategy, whose own options it has too.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fluid/mixed_precision/options.h"
#include "strategies/collective/local_sgd_schedule.h"
#include "strategies/strategy.h"

namespace fleet::strategies::collective {

struct DistributedStrategy {
  // "nccl2" and "collective" both all-reduce gradients here.
  std::string mode = "nccl2";
  // "", "grad_allreduce" or "local_sgd"; needs mode "collective".
  std::string collective_mode = {};
  // Short for mode "collective" with collective_mode "local_sgd".
  bool use_local_sgd = false;
  LocalSgdOptions local_sgd = {};
  // Communicators that take turns.
  int nccl_comm_num = 1;
  int logical_shards = 0;
  int gradient_merge = 1;
  // Gradients are fused into buckets of about so many bytes.
  bool fuse_all_reduce_ops = true;
  int64_t bucket_bytes = 1 << 20;
  // "float32", "float16" or "bfloat16", as GradAllReduceStrategy has it.
  std::string wire_dtype = "float32";
  // "ordered", "fast" or "host", as GradAllReduceStrategy has it.
  std::string device_sums = "ordered";

  // As GradAllReduceStrategy has it.
  bool sync_batch_norm = false;
  // Backward keeps the variables of recompute_checkpoints, and computes what lies between them
  // again.
  bool forward_recompute = false;
  std::vector<std::string> recompute_checkpoints = {};

  // As GradAllReduceStrategy has them.
  bool use_hierarchical_allreduce = false;
  int hierarchical_allreduce_inter_nranks = 0;

  // Mixed precision in float16, whose loss is scaled by so much at first and then by what the
  // gradients bear; `amp` has the other options.
  bool use_amp = false;
  double amp_loss_scaling = 32768;
  // As GradAllReduceStrategy has it; without use_amp.
  std::optional<fluid::mixed_precision::Options> amp = {};

  // Refused when it is set: this release does not have it.
  bool use_dist_fc = false;

  std::shared_ptr<const Strategy> make() const;
};

}  // namespace fleet::strategies::collective
