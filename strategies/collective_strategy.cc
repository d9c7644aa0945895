#include "strategies/collective_strategy.h"

#include "base/error.h"
#include "base/strings.h"
#include "strategies/grad_all_reduce_strategy.h"
#include "strategies/local_sgd_strategy.h"

namespace fleet::strategies::collective {
namespace {

constexpr const char* kWhere = "collective::DistributedStrategy";

void refuse(bool asked, const char* field) {
  if (!asked) return;
  throw_error(ErrorCode::kNotSupported,
              {.what = str_cat(field, " is not available in this version"),
               .where = str_cat(kWhere, ".", field),
               .expected = "its default",
               .got = "another value",
               .fix = str_cat("leave ", field, " out")});
}

void one_of(const char* field, const std::string& value, const std::vector<std::string>& known) {
  for (const std::string& name : known) {
    if (name == value) return;
  }
  throw_error(ErrorCode::kInvalidArgument,
              {.what = str_cat("unknown ", field, did_you_mean(value, known)),
               .where = str_cat(kWhere, ".", field),
               .expected = "one of '" + join(known, "', '") + "'",
               .got = "'" + value + "'",
               .fix = "use one of the names above"});
}

void contradiction(const std::string& first, const std::string& second, const std::string& fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = "two fields contradict each other",
                                            .where = kWhere,
                                            .expected = "at most one of them",
                                            .got = str_cat(first, ", ", second),
                                            .fix = fix});
}

void check(const DistributedStrategy& strategy) {
  one_of("mode", strategy.mode, {"nccl2", "collective"});
  one_of("collective_mode", strategy.collective_mode, {"", "grad_allreduce", "local_sgd"});
  refuse(strategy.use_dist_fc, "use_dist_fc");
  if (strategy.forward_recompute != !strategy.recompute_checkpoints.empty()) {
    throw_error(
        ErrorCode::kInvalidArgument,
        {.what = "forward_recompute and recompute_checkpoints go together",
         .where = str_cat(kWhere, ".recompute_checkpoints"),
         .expected = strategy.forward_recompute ? "names of variables to keep" : "none",
         .got = strategy.forward_recompute ? "none" : join(strategy.recompute_checkpoints, ","),
         .fix = strategy.forward_recompute
                    ? "name variables between the layers of the forward part"
                    : "set forward_recompute, or leave recompute_checkpoints out"});
  }
  if (strategy.use_amp && strategy.amp) {
    contradiction("use_amp = true", "amp", "leave use_amp out: amp says all of it");
  }
  if (!strategy.use_amp && strategy.amp_loss_scaling != DistributedStrategy().amp_loss_scaling) {
    contradiction("use_amp = false", str_cat("amp_loss_scaling = ", strategy.amp_loss_scaling),
                  "set use_amp");
  }
  if (strategy.nccl_comm_num < 1) {
    throw_error(ErrorCode::kInvalidArgument, {.what = "a job needs a communicator",
                                              .where = str_cat(kWhere, ".nccl_comm_num"),
                                              .expected = "1 or more",
                                              .got = str_cat(strategy.nccl_comm_num),
                                              .fix = "leave it at 1"});
  }
  if (!strategy.collective_mode.empty() && strategy.mode != "collective") {
    contradiction("mode = 'nccl2'", "collective_mode = '" + strategy.collective_mode + "'",
                  "set mode to 'collective'");
  }
  if (strategy.use_local_sgd && strategy.collective_mode == "grad_allreduce") {
    contradiction("use_local_sgd = true", "collective_mode = 'grad_allreduce'", "leave one out");
  }
  if (strategy.mode == "collective" && strategy.collective_mode.empty() &&
      !strategy.use_local_sgd) {
    contradiction("mode = 'collective'", "collective_mode = ''", "set collective_mode");
  }
}

std::optional<fluid::mixed_precision::Options> amp_of(const DistributedStrategy& strategy) {
  if (!strategy.use_amp) return strategy.amp;
  fluid::mixed_precision::Options options;
  options.scaling.init_loss_scaling = strategy.amp_loss_scaling;
  return options;
}

}  // namespace

std::shared_ptr<const Strategy> DistributedStrategy::make() const {
  check(*this);
  if (use_local_sgd || collective_mode == "local_sgd") {
    if (logical_shards != 0)
      contradiction("use_local_sgd = true", str_cat("logical_shards = ", logical_shards),
                    "LocalSGD computes one shard a worker");
    if (gradient_merge != 1)
      contradiction("use_local_sgd = true", str_cat("gradient_merge = ", gradient_merge),
                    "leave one out");
    if (use_hierarchical_allreduce)
      contradiction("use_local_sgd = true", "use_hierarchical_allreduce = true",
                    "LocalSGD averages parameters now and then");
    if (sync_batch_norm)
      contradiction("use_local_sgd = true", "sync_batch_norm = true",
                    "workers of LocalSGD train alone");
    if (wire_dtype != "float32")
      contradiction("use_local_sgd = true", str_cat("wire_dtype = '", wire_dtype, "'"),
                    "LocalSGD averages parameters, not gradients");
    if (device_sums != "ordered")
      contradiction("use_local_sgd = true", str_cat("device_sums = '", device_sums, "'"),
                    "LocalSGD averages parameters, not gradients");
    return LocalSgdStrategy{
        .options = local_sgd, .recompute_checkpoints = recompute_checkpoints, .amp = amp_of(*this)}
        .make();
  }
  GradAllReduceStrategy all_reduce;
  all_reduce.logical_shards = logical_shards;
  all_reduce.gradient_merge = gradient_merge;
  all_reduce.bucket_bytes = fuse_all_reduce_ops ? bucket_bytes : 1;
  all_reduce.wire_dtype = wire_dtype;
  all_reduce.device_sums = device_sums;
  all_reduce.nccl_comm_num = nccl_comm_num;
  all_reduce.use_hierarchical_allreduce = use_hierarchical_allreduce;
  all_reduce.hierarchical_allreduce_inter_nranks = hierarchical_allreduce_inter_nranks;
  all_reduce.recompute_checkpoints = recompute_checkpoints;
  all_reduce.sync_batch_norm = sync_batch_norm;
  all_reduce.amp = amp_of(*this);
  return all_reduce.make();
}

}  // namespace fleet::strategies::collective
