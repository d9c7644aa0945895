#include "strategies/grad_all_reduce_strategy.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/nn/sync_batch_norm.h"
#include "strategies/amp_text.h"
#include "strategies/config/options_text.h"
#include "strategies/jobs/collective_job.h"
#include "strategies/jobs/transpiled.h"

namespace fleet::strategies {
namespace {

using transport::ElementType;

std::optional<ElementType> wire_type(const std::string& name) {
  if (name == "float32") return std::nullopt;
  if (name == "float16") return ElementType::kFloat16;
  if (name == "bfloat16") return ElementType::kBFloat16;
  throw_error(ErrorCode::kInvalidArgument, {.what = "gradients cannot travel as this type",
                                            .where = "wire_dtype",
                                            .expected = "float32, float16 or bfloat16",
                                            .got = name,
                                            .fix = "leave it at its default of float32"});
}

DeviceSums sums_on_devices(const std::string& name) {
  if (name == "ordered") return DeviceSums::kOrdered;
  if (name == "fast") return DeviceSums::kFast;
  if (name == "host") return DeviceSums::kHost;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "gradients on devices cannot be summed in this way" +
                       did_you_mean(name, std::vector<std::string>{"ordered", "fast", "host"}),
               .where = "device_sums",
               .expected = "ordered, fast or host",
               .got = name,
               .fix = "leave it at its default of ordered"});
}

class GradAllReduce final : public Strategy {
 public:
  explicit GradAllReduce(GradAllReduceStrategy options)
      : options_(std::move(options)),
        wire_(wire_type(options_.wire_dtype)),
        device_sums_(sums_on_devices(options_.device_sums)) {
    if (options_.bucket_bytes <= 0) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "the size of a bucket must be positive",
                                                .where = "bucket_bytes",
                                                .expected = "a number above 0",
                                                .got = str_cat(options_.bucket_bytes),
                                                .fix = "leave it at its default of 1 MiB"});
    }
    check_gradient_merge("GradAllReduceStrategy", options_.gradient_merge, options_.logical_shards);
    if (options_.nccl_comm_num < 1) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "a job needs a communicator",
                                                .where = "nccl_comm_num",
                                                .expected = "1 or more",
                                                .got = str_cat(options_.nccl_comm_num),
                                                .fix = "leave it at 1"});
    }
    const int group = options_.hierarchical_allreduce_inter_nranks;
    if (group < 0 || (group > 0 && !options_.use_hierarchical_allreduce)) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "ranks of a group without hierarchical all-reduce",
                   .where = "hierarchical_allreduce_inter_nranks",
                   .expected = "0, or more with use_hierarchical_allreduce",
                   .got = str_cat(group),
                   .fix = "set use_hierarchical_allreduce, or leave the number out"});
    }
  }

  std::string_view name() const override { return "all_reduce"; }

  StrategyResult rewrite(const StrategyInput& input) const override {
    require_collective(input, "GradAllReduceStrategy");
    if (options_.use_hierarchical_allreduce) take_groups(input);
    const int shards =
        resolve_logical_shards(options_.logical_shards, input.cluster, options_.gradient_merge);
    auto programs = transpiled(input, *transpiler_config(), shards);
    if (options_.sync_batch_norm) fluid::synchronize_batch_norms(programs.main);
    CollectiveRuntimeOptions runtime{.logical_shards = shards};
    runtime.reducer.bucket_bytes = static_cast<size_t>(options_.bucket_bytes);
    runtime.reducer.wire = wire_;
    runtime.device_sums = device_sums_;
    runtime.device_communicators = options_.nccl_comm_num;
    runtime.hierarchical = options_.use_hierarchical_allreduce;
    runtime.group_ranks = options_.hierarchical_allreduce_inter_nranks;
    auto made = make_collective_runtime(input, *this, programs.main, std::move(runtime));
    return {std::move(programs.main), std::move(programs.startup), std::move(made)};
  }

  std::string to_string() const override {
    const GradAllReduceStrategy defaults;
    return OptionsText()
        .add("logical_shards", options_.logical_shards, defaults.logical_shards)
        .add("gradient_merge", options_.gradient_merge, defaults.gradient_merge)
        .add("bucket_bytes", options_.bucket_bytes, defaults.bucket_bytes)
        .add("wire_dtype", options_.wire_dtype, defaults.wire_dtype)
        .add("device_sums", options_.device_sums, defaults.device_sums)
        .add("sync_batch_norm", options_.sync_batch_norm, defaults.sync_batch_norm)
        .add("recompute_checkpoints", join(options_.recompute_checkpoints, ","), std::string())
        .add("amp", amp_text(options_.amp), amp_text({}))
        .add("nccl_comm_num", options_.nccl_comm_num, defaults.nccl_comm_num)
        .add("use_hierarchical_allreduce", options_.use_hierarchical_allreduce, false)
        .add("hierarchical_allreduce_inter_nranks", options_.hierarchical_allreduce_inter_nranks, 0)
        .text();
  }
  std::vector<std::string> recompute_checkpoints() const override {
    return options_.recompute_checkpoints;
  }
  std::optional<fluid::mixed_precision::Options> mixed_precision() const override {
    return options_.amp;
  }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    transpiler::DistributeTranspilerConfig config;
    config.mode = "collective";
    config.collective_mode = "grad_allreduce";
    config.nccl_comm_num = options_.nccl_comm_num;
    return std::make_shared<transpiler::DistributeTranspilerConfig>(std::move(config));
  }

 private:
  // As in Paddle, ranks that are no more than one group have no hierarchy.
  void take_groups(const StrategyInput& input) const {
    const int workers = input.cluster.worker_num;
    const int group = options_.hierarchical_allreduce_inter_nranks;
    if (group > 0 && workers > group && workers % group != 0) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "the workers do not divide into groups of this size",
                   .where = "hierarchical_allreduce_inter_nranks",
                   .expected = str_cat("a divisor of the number of workers, ", workers),
                   .got = str_cat(group),
                   .fix = "change it, or leave it out"});
    }
    input.logger.info(
        "all_reduce",
        "use_hierarchical_allreduce has no effect on sums over host memory, where all "
        "ranks are one communicator",
        {});
  }

  GradAllReduceStrategy options_;
  std::optional<ElementType> wire_;  // none: as they are
  DeviceSums device_sums_;
};

}  // namespace

std::shared_ptr<const Strategy> GradAllReduceStrategy::make() const {
  return std::make_shared<GradAllReduce>(*this);
}

}  // namespace fleet::strategies
