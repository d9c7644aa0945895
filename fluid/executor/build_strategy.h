// How a program is run by several replicas, in the fields of Paddle Fluid 1.8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fleet::fluid {

// Fields below "hints" change no result here and are accepted: one line of the log names those that
// are set. Fields that would change results and are not built are refused by name.
struct BuildStrategy {
  // Who updates a parameter: every replica after an all-reduce, or one that then gives it to the
  // others. The numbers are the same, and so is what this library does.
  enum class ReduceStrategy : uint8_t { kAllReduce, kReduce };
  // What each replica's loss gradient begins with: 1 / replicas of the job, 1, or what is fed as
  // "<loss>@GRAD", one value a replica.
  enum class GradientScaleStrategy : uint8_t { kCoeffNumDevice, kOne, kCustomized };

  ReduceStrategy reduce_strategy = ReduceStrategy::kAllReduce;
  GradientScaleStrategy gradient_scale_strategy = GradientScaleStrategy::kCoeffNumDevice;

  // Processes of the job, and which of them this one is.
  int num_trainers = 1;
  int trainer_id = 0;
  // By trainer; may be empty. The job's own are those of gen_nccl_id.
  std::vector<std::string> trainers_endpoints;
  // Communicators, and levels of them: one communicator on CPU, whatever they say.
  int nccl_comm_num = 1;
  bool use_hierarchical_allreduce = false;
  int hierarchical_allreduce_inter_nranks = 0;

  // Batch norms take the mean and the variance of all replicas' rows (ops/nn/sync_batch_norm.h).
  bool sync_batch_norm = false;

  // Refused unless false: it would change results.
  bool async_mode = false;

  // Hints.
  std::optional<bool> fuse_all_reduce_ops;
  std::optional<bool> fuse_broadcast_ops;
  bool fuse_all_optimizer_ops = false;
  bool fuse_elewise_add_act_ops = false;
  bool fuse_bn_act_ops = false;
  bool fuse_relu_depthwise_conv = false;
  std::optional<bool> memory_optimize;
  bool enable_inplace = true;
  bool enable_backward_optimizer_op_deps = true;
  bool enable_sequential_execution = false;
  bool remove_unnecessary_lock = true;
  bool cache_runtime_context = false;
  std::string debug_graphviz_path;
};

struct ExecutionStrategy {
  // Threads of a step, which run replicas, or compute the ops of the only one; 0: those of the
  // executor.
  int num_threads = 0;
  // Steps that one run takes with the same feed; what is fetched is the last one's.
  int num_iteration_per_run = 1;

  // Hints.
  int num_iteration_per_drop_scope = 100;
  bool thread_barrier = false;
  bool allow_op_delay = false;
};

// Throws UsageError that names the field, its value and the fix.
void validate(const BuildStrategy& strategy);
void validate(const ExecutionStrategy& strategy);

// Names of hints that are not at their default.
std::vector<std::string> hints_of(const BuildStrategy& build, const ExecutionStrategy& execution);

}  // namespace fleet::fluid
