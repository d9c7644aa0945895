#include "strategies/grad_all_reduce_strategy.h"

#include <optional>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
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

class GradAllReduce final : public Strategy {
 public:
  explicit GradAllReduce(GradAllReduceStrategy options)
      : options_(std::move(options)), wire_(wire_type(options_.wire_dtype)) {
    if (options_.bucket_bytes <= 0) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "the size of a bucket must be positive",
                                                .where = "bucket_bytes",
                                                .expected = "a number above 0",
                                                .got = str_cat(options_.bucket_bytes),
                                                .fix = "leave it at its default of 1 MiB"});
    }
    check_gradient_merge("GradAllReduceStrategy", options_.gradient_merge, options_.logical_shards);
  }

  std::string_view name() const override { return "all_reduce"; }

  StrategyResult rewrite(const StrategyInput& input) const override {
    require_collective(input, "GradAllReduceStrategy");
    const int shards =
        resolve_logical_shards(options_.logical_shards, input.cluster, options_.gradient_merge);
    auto programs = transpiled(input, *transpiler_config(), shards);
    CollectiveRuntimeOptions runtime{.logical_shards = shards};
    runtime.reducer.bucket_bytes = static_cast<size_t>(options_.bucket_bytes);
    runtime.reducer.wire = wire_;
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
  GradAllReduceStrategy options_;
  std::optional<ElementType> wire_;  // none: as they are
};

}  // namespace

std::shared_ptr<const Strategy> GradAllReduceStrategy::make() const {
  return std::make_shared<GradAllReduce>(*this);
}

}  // namespace fleet::strategies
