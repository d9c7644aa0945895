#include "strategies/sync_strategy.h"

#include "strategies/jobs/job_identity.h"
#include "strategies/jobs/server_job.h"
#include "strategies/jobs/transpiled.h"

namespace fleet::strategies {
namespace {

class Sync final : public Strategy {
 public:
  explicit Sync(SyncStrategy options) : options_(std::move(options)) {}

  std::string_view name() const override { return fluid::to_string(fluid::ServerMode::kSync); }

  StrategyResult rewrite(const StrategyInput& input) const override {
    require_servers(input, "SyncStrategy");
    const int shards = resolve_logical_shards(options_.logical_shards, input.cluster);
    auto programs = transpiled(input, *transpiler_config(), shards);
    ServerJob job = make_server_job(input, *this, shards, resolve(input.config));
    job.config.facts.emplace("placement", placement_fact(programs.main.distribution()));
    auto runtime = make_runtime(std::move(job), input.cluster.is_server(), input.main);
    return {std::move(programs.main), std::move(programs.startup), std::move(runtime)};
  }

  std::string to_string() const override {
    const SyncStrategy defaults;
    return OptionsText()
        .add("logical_shards", options_.logical_shards, defaults.logical_shards)
        .add("slice_var_up", options_.slice_var_up, defaults.slice_var_up)
        .add("min_block_size", options_.min_block_size, defaults.min_block_size)
        .add("slices_per_server", options_.slices_per_server, defaults.slices_per_server)
        .add("split_method", options_.split_method.name(), defaults.split_method.name())
        .add("runtime_split_send_recv", options_.runtime_split_send_recv,
             defaults.runtime_split_send_recv)
        .text();
  }
  std::string describe(const RuntimeConfig& config) const override {
    return to_string() + resolve(config).to_string();
  }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    transpiler::DistributeTranspilerConfig config;
    config.slice_var_up = options_.slice_var_up;
    config.min_block_size = options_.min_block_size;
    config.slices_per_server = options_.slices_per_server;
    config.split_method = options_.split_method;
    if (options_.runtime_split_send_recv) {
      config.sync_mode = false;
      config.runtime_split_send_recv = true;
      config.half_async = true;
      config.completely_not_async = true;
    }
    return std::make_shared<transpiler::DistributeTranspilerConfig>(std::move(config));
  }

 private:
  ServerModeConfig resolve(const RuntimeConfig& config) const {
    return {options_.trainer_runtime_config, options_.server_runtime_config, config};
  }

  SyncStrategy options_;
};

}  // namespace

std::shared_ptr<const Strategy> SyncStrategy::make() const {
  return std::make_shared<Sync>(*this);
}

}  // namespace fleet::strategies
