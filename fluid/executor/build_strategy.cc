#include "fluid/executor/build_strategy.h"

#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/executor.h"

namespace fleet::fluid {
namespace {

void refuse(bool asked, const char* field) {
  if (!asked) return;
  throw_error(ErrorCode::kNotSupported,
              {.what = str_cat(field, " would change results and is not built"),
               .where = str_cat("BuildStrategy.", field),
               .expected = "false",
               .got = "true",
               .fix = str_cat("leave ", field, " out")});
}

void check_range(const char* field, int value, int low, int high, const char* fix) {
  if (value >= low && value <= high) return;
  throw_error(
      ErrorCode::kInvalidArgument,
      {.what = "a field of a strategy is out of range",
       .where = field,
       .expected = high == INT32_MAX ? str_cat(low, " or more") : str_cat(low, " to ", high),
       .got = str_cat(value),
       .fix = fix});
}

void check_trainers(const BuildStrategy& strategy) {
  check_range("BuildStrategy.num_trainers", strategy.num_trainers, 1, INT32_MAX,
              "set it to the number of processes");
  check_range("BuildStrategy.trainer_id", strategy.trainer_id, 0, strategy.num_trainers - 1,
              "number the processes from 0");
  const size_t endpoints = strategy.trainers_endpoints.size();
  if (endpoints == 0 || endpoints == static_cast<size_t>(strategy.num_trainers)) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "there are not as many endpoints as trainers",
               .where = "BuildStrategy.trainers_endpoints, BuildStrategy.num_trainers",
               .expected = str_cat(strategy.num_trainers, " endpoints"),
               .got = str_cat(endpoints),
               .fix = "give one for each trainer, or leave trainers_endpoints out"});
}

void check_hierarchy(const BuildStrategy& strategy) {
  check_range("BuildStrategy.nccl_comm_num", strategy.nccl_comm_num, 1, INT32_MAX, "leave it at 1");
  const int inner = strategy.hierarchical_allreduce_inter_nranks;
  if (!strategy.use_hierarchical_allreduce || inner <= 1) return;
  if (strategy.num_trainers > inner && strategy.num_trainers % inner == 0) return;
  throw_error(
      ErrorCode::kInvalidArgument,
      {.what = "the trainers do not divide into groups of this size",
       .where = "BuildStrategy.hierarchical_allreduce_inter_nranks",
       .expected = str_cat("a divisor of num_trainers, ", strategy.num_trainers, ", and less"),
       .got = str_cat(inner),
       .fix = "change it, or leave use_hierarchical_allreduce out"});
}

}  // namespace

void validate(const BuildStrategy& strategy) {
  refuse(strategy.async_mode, "async_mode");
  check_trainers(strategy);
  check_hierarchy(strategy);
}

void validate(const ExecutionStrategy& strategy) {
  check_range("ExecutionStrategy.num_threads", strategy.num_threads, 0,
              ExecutorOptions::kMaxThreads, "leave it at 0");
  check_range("ExecutionStrategy.num_iteration_per_run", strategy.num_iteration_per_run, 1,
              INT32_MAX, "leave it at 1");
}

std::vector<std::string> hints_of(const BuildStrategy& build, const ExecutionStrategy& execution) {
  const BuildStrategy plain;
  const ExecutionStrategy usual;
  std::vector<std::string> names;
  const auto add = [&names](bool set, const char* name) {
    if (set) names.emplace_back(name);
  };
  add(build.reduce_strategy != plain.reduce_strategy, "reduce_strategy");
  add(build.nccl_comm_num != plain.nccl_comm_num, "nccl_comm_num");
  add(build.use_hierarchical_allreduce, "use_hierarchical_allreduce");
  add(build.fuse_all_reduce_ops.has_value(), "fuse_all_reduce_ops");
  add(build.fuse_broadcast_ops.has_value(), "fuse_broadcast_ops");
  add(build.fuse_all_optimizer_ops, "fuse_all_optimizer_ops");
  add(build.fuse_elewise_add_act_ops, "fuse_elewise_add_act_ops");
  add(build.fuse_bn_act_ops, "fuse_bn_act_ops");
  add(build.fuse_relu_depthwise_conv, "fuse_relu_depthwise_conv");
  add(build.memory_optimize.has_value(), "memory_optimize");
  add(build.enable_inplace != plain.enable_inplace, "enable_inplace");
  add(build.enable_backward_optimizer_op_deps != plain.enable_backward_optimizer_op_deps,
      "enable_backward_optimizer_op_deps");
  add(build.enable_sequential_execution, "enable_sequential_execution");
  add(build.remove_unnecessary_lock != plain.remove_unnecessary_lock, "remove_unnecessary_lock");
  add(build.cache_runtime_context, "cache_runtime_context");
  add(!build.debug_graphviz_path.empty(), "debug_graphviz_path");
  add(execution.num_iteration_per_drop_scope != usual.num_iteration_per_drop_scope,
      "num_iteration_per_drop_scope");
  add(execution.thread_barrier, "thread_barrier");
  add(execution.allow_op_delay, "allow_op_delay");
  return names;
}

}  // namespace fleet::fluid
