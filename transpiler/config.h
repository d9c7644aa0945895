// What the transpiler is told, and which combinations make sense.
#pragma once

#include <cereal/cereal.hpp>
#include <cstdint>
#include <string>

#include "fluid/program/server_mode.h"
#include "transpiler/split_method.h"

namespace fleet::transpiler {

// Field names and defaults are those of Paddle Fluid 1.8. A value type; validate() below says
// whether its fields agree with each other: an option of a mode beside another mode is an error as
// well.
struct DistributeTranspilerConfig {
  // Cut parameters into slices of whole rows, so that servers share the work. As in Paddle,
  // GEO cuts them whatever this says.
  bool slice_var_up = true;
  // Which server a slice goes to: "RoundRobin", "HashName", "Balanced", or an object of a class of
  // one's own (transpiler/split_method.h).
  SplitMethod split_method = "RoundRobin";
  // Elements; a parameter is not cut into slices smaller than this. At least 8192.
  int min_block_size = 8192;
  // Slices of a dense parameter on each server, where min_block_size allows so many. Paddle
  // makes 1. Over a slow network more are faster: a slice's new value comes back while gradients of
  // others still leave.
  int slices_per_server = 1;
  // Norms in updates (LARS, LAMB) are those of the whole parameter: servers exchange sums over rows
  // where gradients are averaged; elsewhere such a parameter is not cut. False: of each slice, as
  // Paddle computes them.
  bool whole_norms = true;
  // Synchronous jobs: servers average what the forward part keeps (batch norm's moving mean and
  // variance) over the shards. False: each trainer keeps its own, as Paddle does.
  bool server_statistics = true;
  // Rows of a sparse hierarchical_sigmoid's weight travel, as a table's do. False: its whole weight
  // is received, as in Paddle.
  bool prefetch_trees = true;
  // Tables of sparse lookup_table and nce ops that are not trained begin on trainers as in a local
  // run, and those with a dense gradient (other lookups of them are dense) are received at the
  // start. False: they are not initialised there, as in Paddle, and hold zeros until they are
  // loaded or received.
  bool initialise_frozen_tables = true;
  // As in Paddle, schedules of N workers count the first gradient as step N; in half-async
  // and runtime-split synchronous jobs they stay there. False: the rates are those of a local run.
  bool paddle_schedules = false;
  // Servers correct gradients of older parameters, in the way that the next fields say.
  bool enable_dc_asgd = false;
  // How delay is compensated: "paddle" (lambda 1, as Paddle computes it), "constant" and
  // "adaptive" (Zheng et al., ICML 2017), "clipped" (ours: as adaptive, but a component changes by
  // at most its own size). fluid/ops/distributed/server_ops.h has the formulas.
  std::string dc_asgd_form = "clipped";
  // 0: the form's own, 1, 0.04, 2 and 4. Another value contradicts "paddle".
  double dc_asgd_lambda = 0;
  double dc_asgd_m = 0.95;
  double dc_asgd_epsilon = 1e-7;
  // "pserver"; "nccl2": ids for communicators, main program untouched; "collective".
  std::string mode = "pserver";
  // Every pass and where every slice went, in lines of TranspileOptions::logger.
  bool print_log = false;
  // Recorded in the program; the runtime waits, bounded by its deadline.
  bool wait_port = true;

  // Parameter servers. At most one of sync_mode and completely_not_async. transpile() may be given
  // another sync_mode.
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
  // local_sgd: false: all ranks average after every step, by snapshots, as Paddle does; true:
  // one op averages when the runtime's schedule says so (interval, later start, adaptive).
  bool local_sgd_scheduled = false;
  // grad_allreduce: gradients that follow each other are reduced by one op up to this many bytes;
  // 0: one op for each gradient (the runtime still puts them together).
  int64_t fuse_all_reduce_bytes = 0;

  bool operator==(const DistributeTranspilerConfig&) const = default;
  template <class Archive>
  void serialize(Archive& ar) {
    std::string method = split_method.name();
    ar(CEREAL_NVP(slice_var_up), cereal::make_nvp("split_method", method),
       CEREAL_NVP(min_block_size), CEREAL_NVP(slices_per_server), CEREAL_NVP(whole_norms),
       CEREAL_NVP(server_statistics), CEREAL_NVP(prefetch_trees),
       CEREAL_NVP(initialise_frozen_tables), CEREAL_NVP(paddle_schedules),
       CEREAL_NVP(enable_dc_asgd), CEREAL_NVP(dc_asgd_form), CEREAL_NVP(dc_asgd_lambda),
       CEREAL_NVP(dc_asgd_m), CEREAL_NVP(dc_asgd_epsilon), CEREAL_NVP(mode), CEREAL_NVP(print_log),
       CEREAL_NVP(wait_port), CEREAL_NVP(sync_mode), CEREAL_NVP(runtime_split_send_recv),
       CEREAL_NVP(half_async), CEREAL_NVP(completely_not_async), CEREAL_NVP(geo_sgd_mode),
       CEREAL_NVP(geo_sgd_need_push_nums), CEREAL_NVP(nccl_comm_num),
       CEREAL_NVP(use_hierarchical_allreduce), CEREAL_NVP(hierarchical_allreduce_inter_nranks),
       CEREAL_NVP(collective_mode), CEREAL_NVP(local_sgd_scheduled),
       CEREAL_NVP(fuse_all_reduce_bytes));
    if (method != split_method.name()) split_method = SplitMethod(std::move(method));
  }
};

// A form of delay compensation with its numbers.
struct DcAsgdForm {
  std::string name;  // empty: none
  double lambda = 1;
  double m = 0.95;
  double epsilon = 1e-7;

  bool operator==(const DcAsgdForm&) const = default;
};
DcAsgdForm dc_asgd_form(const DistributeTranspilerConfig& config);

// The mode that sync_mode, half_async, completely_not_async and geo_sgd_mode say together, of a
// configuration with servers.
fluid::ServerMode server_mode(const DistributeTranspilerConfig& config);

// Throws UsageError (kInvalidArgument) for a value out of range or two fields that contradict
// each other, naming both.
void validate(const DistributeTranspilerConfig& config);

// As validate, but of contradictions with sync_mode it reports none: for whoever says later what
// sync_mode is.
void validate_but_sync_mode(const DistributeTranspilerConfig& config);

}  // namespace fleet::transpiler
