#include "strategies/grad_all_reduce_strategy.h"

#include "base/error.h"
#include "base/strings.h"
#include "strategies/config/options_text.h"
#include "strategies/jobs/collective_job.h"
#include "strategies/jobs/transpiled.h"

namespace fleet::strategies {
namespace {

class GradAllReduce final : public Strategy {
 public:
  explicit GradAllReduce(GradAllReduceStrategy options) : options_(options) {
    if (options_.bucket_bytes <= 0) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "the size of a bucket must be positive",
                                                .where = "bucket_bytes",
                                                .expected = "a number above 0",
                                                .got = str_cat(options_.bucket_bytes),
                                                .fix = "leave it at its default of 1 MiB"});
    }
    if (options_.gradient_merge < 1) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "a step has at least one part",
                                                .where = "gradient_merge",
                                                .expected = "1 or more",
                                                .got = str_cat(options_.gradient_merge),
                                                .fix = "leave it at its default of 1"});
    }
    if (options_.gradient_merge > 1 && options_.logical_shards > 0) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "gradient_merge and logical_shards contradict each other",
                   .where = "GradAllReduceStrategy",
                   .expected = "at most one of them",
                   .got = str_cat("gradient_merge = ", options_.gradient_merge,
                                  ", logical_shards = ", options_.logical_shards),
                   .fix = "logical_shards = workers * gradient_merge says the same"});
    }
  }

  std::string_view name() const override { return "all_reduce"; }

  StrategyResult rewrite(const StrategyInput& input) const override {
    require_collective(input, "GradAllReduceStrategy");
    const int shards = resolve_logical_shards(wanted_shards(input.cluster), input.cluster);
    auto programs = transpiled(input, *transpiler_config(), shards);
    CollectiveRuntimeOptions runtime{.logical_shards = shards};
    runtime.reducer.bucket_bytes = static_cast<size_t>(options_.bucket_bytes);
    auto made = make_collective_runtime(input, *this, programs.main, std::move(runtime));
    return {std::move(programs.main), std::move(programs.startup), std::move(made)};
  }

  std::string to_string() const override {
    const GradAllReduceStrategy defaults;
    return OptionsText()
        .add("logical_shards", options_.logical_shards, defaults.logical_shards)
        .add("gradient_merge", options_.gradient_merge, defaults.gradient_merge)
        .add("bucket_bytes", options_.bucket_bytes, defaults.bucket_bytes)
        .add("nccl_comm_num", options_.nccl_comm_num, defaults.nccl_comm_num)
        .text();
  }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    transpiler::DistributeTranspilerConfig config;
    config.mode = "collective";
    config.collective_mode = "grad_allreduce";
    config.nccl_comm_num = options_.nccl_comm_num;
    return std::make_shared<transpiler::DistributeTranspilerConfig>(std::move(config));
  }

 private:
  int wanted_shards(const role_maker::ClusterSpec& cluster) const {
    if (options_.gradient_merge > 1) return options_.gradient_merge * cluster.worker_num;
    return options_.logical_shards;
  }

  GradAllReduceStrategy options_;
};

}  // namespace

std::shared_ptr<const Strategy> GradAllReduceStrategy::make() const {
  return std::make_shared<GradAllReduce>(*this);
}

}  // namespace fleet::strategies
