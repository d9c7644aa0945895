#include "strategies/local_sgd_strategy.h"

#include <utility>

#include "base/strings.h"
#include "strategies/amp_text.h"
#include "strategies/config/options_text.h"
#include "strategies/jobs/collective_job.h"
#include "strategies/jobs/transpiled.h"

namespace fleet::strategies {
namespace {

class LocalSgd final : public Strategy {
 public:
  explicit LocalSgd(LocalSgdStrategy strategy)
      : options_(strategy.options),
        checkpoints_(std::move(strategy.recompute_checkpoints)),
        amp_(std::move(strategy.amp)) {
    validate(options_);
  }

  std::string_view name() const override { return "local_sgd"; }

  StrategyResult rewrite(const StrategyInput& input) const override {
    require_collective(input, "LocalSgdStrategy");
    const int workers = input.cluster.worker_num;
    auto programs = transpiled(input, *transpiler_config(), workers);
    CollectiveRuntimeOptions runtime{.logical_shards = workers, .local_sgd = options_};
    auto made = make_collective_runtime(input, *this, programs.main, std::move(runtime));
    return {std::move(programs.main), std::move(programs.startup), std::move(made)};
  }

  std::string to_string() const override {
    const LocalSgdOptions defaults;
    return OptionsText()
        .add("interval", options_.interval, defaults.interval)
        .add("start_step", options_.start_step, defaults.start_step)
        .add("rule", strategies::to_string(options_.rule), strategies::to_string(defaults.rule))
        .add("adapt_every", options_.adapt_every, defaults.adapt_every)
        .add("with_learning_rate", options_.with_learning_rate, defaults.with_learning_rate)
        .add("shrink", options_.shrink, defaults.shrink)
        .add("min_interval", options_.min_interval, defaults.min_interval)
        .add("max_interval", options_.max_interval, defaults.max_interval)
        .add("recompute_checkpoints", join(checkpoints_, ","), std::string())
        .add("amp", amp_text(amp_), amp_text({}))
        .text();
  }
  std::vector<std::string> recompute_checkpoints() const override { return checkpoints_; }
  std::optional<fluid::mixed_precision::Options> mixed_precision() const override { return amp_; }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    transpiler::DistributeTranspilerConfig config;
    config.mode = "collective";
    config.collective_mode = "local_sgd";
    config.local_sgd_scheduled = true;
    return std::make_shared<transpiler::DistributeTranspilerConfig>(std::move(config));
  }

 private:
  LocalSgdOptions options_;
  std::vector<std::string> checkpoints_;
  std::optional<fluid::mixed_precision::Options> amp_;
};

}  // namespace

std::shared_ptr<const Strategy> LocalSgdStrategy::make() const {
  return std::make_shared<LocalSgd>(*this);
}

}  // namespace fleet::strategies
