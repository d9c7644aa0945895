#include "strategies/sync_strategy.h"

#include "base/error.h"
#include "base/strings.h"
#include "strategies/job_identity.h"
#include "strategies/options_text.h"
#include "strategies/sync_runtime.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::strategies {
namespace {

ParameterServerConfig config_of(const StrategyInput& input, const Strategy& strategy, int shards) {
  ParameterServerConfig config = server_config(input.config, input.cluster.server_endpoints);
  config.index = static_cast<uint32_t>(input.cluster.index);
  config.worker_num = static_cast<uint32_t>(input.cluster.worker_num);
  config.logical_shards = static_cast<uint32_t>(shards);
  config.job_id = choose_job_id(input.config, input.cluster);
  config.secret = choose_job_secret(input.config, input.cluster);
  config.facts = job_facts(input, strategy);
  return config;
}

class Sync final : public Strategy {
 public:
  explicit Sync(SyncStrategy options) : options_(std::move(options)) {}

  std::string_view name() const override { return "sync"; }

  StrategyResult rewrite(const StrategyInput& input) const override {
    if (input.cluster.mode != role_maker::Mode::kParameterServer) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "this strategy needs parameter servers",
                   .where = "SyncStrategy",
                   .expected = "mode parameter_server",
                   .got = "mode " + std::string(role_maker::to_string(input.cluster.mode)),
                   .fix = "start the processes with launch_ps"});
    }
    const int shards = resolve_logical_shards(options_.logical_shards, input.cluster);
    auto programs = transpiler::transpile_for(input.main, input.startup, input.cluster,
                                              transpiler_config(), shards);
    SyncJob job{.config = config_of(input, *this, shards),
                .transport = transport::parse_transport_choice(input.config.transport).value(),
                .server_names = input.cluster.server_endpoints,
                .logger = input.logger};
    auto runtime = input.cluster.is_server() ? make_sync_server(std::move(job))
                                             : make_sync_worker(std::move(job), input.main);
    return {std::move(programs.main), std::move(programs.startup), std::move(runtime)};
  }

  std::string to_string() const override {
    const SyncStrategy defaults;
    return OptionsText()
        .add("logical_shards", options_.logical_shards, defaults.logical_shards)
        .add("slice_var_up", options_.slice_var_up, defaults.slice_var_up)
        .add("min_block_size", options_.min_block_size, defaults.min_block_size)
        .add("split_method", options_.split_method, defaults.split_method)
        .add("runtime_split_send_recv", options_.runtime_split_send_recv,
             defaults.runtime_split_send_recv)
        .text();
  }

 private:
  transpiler::DistributeTranspilerConfig transpiler_config() const {
    transpiler::DistributeTranspilerConfig config;
    config.slice_var_up = options_.slice_var_up;
    config.min_block_size = options_.min_block_size;
    config.split_method = options_.split_method;
    if (options_.runtime_split_send_recv) {
      config.sync_mode = false;
      config.runtime_split_send_recv = true;
      config.half_async = true;
      config.completely_not_async = true;
    }
    return config;
  }

  SyncStrategy options_;
};

}  // namespace

std::shared_ptr<const Strategy> SyncStrategy::make() const {
  return std::make_shared<Sync>(*this);
}

}  // namespace fleet::strategies
