// What the transpiler is told, and which combinations make sense.
#pragma once

#include <string>

namespace fleet::transpiler {

// Field names and defaults are those of Paddle Fluid 1.8. A value type; validate() below says
// whether its fields agree with each other.
struct DistributeTranspilerConfig {
  // Cut parameters into slices of whole rows, so that servers share the work.
  bool slice_var_up = true;
  // Which server a slice goes to: "RoundRobin" in order of slices, or "HashName" by a stable hash
  // of the slice's name (fnv1a), which does not depend on the other parameters.
  std::string split_method = "RoundRobin";
  // Elements; a parameter is not cut into slices smaller than this. At least 8192.
  int min_block_size = 8192;
  bool enable_dc_asgd = false;
  // "pserver"; "nccl2": ids for communicators, main program untouched; "collective".
  std::string mode = "pserver";
  bool print_log = false;
  // Recorded in the program; the runtime waits, bounded by its deadline.
  bool wait_port = true;

  // Parameter servers. At most one of sync_mode and completely_not_async.
  bool sync_mode = true;
  // send and recv carry whole variables and the runtime cuts them.
  bool runtime_split_send_recv = false;
  bool half_async = false;
  // Synchronous by way of the runtime-split form.
  bool completely_not_async = false;
  bool geo_sgd_mode = false;
  int geo_sgd_need_push_nums = 100;

  // nccl2 and collective.
  int nccl_comm_num = 1;
  bool use_hierarchical_allreduce = false;
  int hierarchical_allreduce_inter_nranks = 0;
  // "", "grad_allreduce", "local_sgd" or "single_process_multi_thread".
  std::string collective_mode;

  bool operator==(const DistributeTranspilerConfig&) const = default;
};

// Throws UsageError (kInvalidArgument) for a value out of range or two fields that contradict each
// other, naming both; kNotSupported for a mode that this library does not have.
void validate(const DistributeTranspilerConfig& config);

}  // namespace fleet::transpiler
