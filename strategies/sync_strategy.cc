#include "strategies/sync_strategy.h"

#include "base/error.h"
#include "base/strings.h"
#include "strategies/job_identity.h"
#include "strategies/options_text.h"
#include "strategies/parameter_server/server_runtime.h"
#include "strategies/parameter_server/worker_runtime.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::strategies {
namespace {

using std::chrono::milliseconds;

ParameterServerConfig config_of(const StrategyInput& input, const Strategy& strategy, int shards) {
  ParameterServerConfig config;
  config.index = static_cast<uint32_t>(input.cluster.index);
  config.worker_num = static_cast<uint32_t>(input.cluster.worker_num);
  config.logical_shards = static_cast<uint32_t>(shards);
  for (const std::string& endpoint : input.cluster.server_endpoints) {
    config.servers.push_back(transport::Endpoint::parse(endpoint).value());
  }
  config.job_id = choose_job_id(input.config, input.cluster);
  config.secret = choose_job_secret(input.config, input.cluster);
  config.facts = job_facts(input, strategy);
  config.require_same_bits = input.config.require_same_bits;
  config.data_lanes = static_cast<uint32_t>(input.config.data_lanes);
  config.rpc_deadline = milliseconds(input.config.rpc_deadline_ms);
  config.heartbeat_interval = milliseconds(input.config.heartbeat_interval_ms);
  config.heartbeat_timeout = milliseconds(input.config.heartbeat_timeout_ms);
  config.stall_report = milliseconds(input.config.stall_report_ms);
  config.stall_deadline = milliseconds(input.config.stall_deadline_ms);
  return config;
}

// A worker's place in the job, as the facade wants it.
class SyncWorker final : public StrategyRuntime {
 public:
  SyncWorker(ParameterServerConfig config, const StrategyInput& input)
      : ops_(std::move(config), transport::parse_transport_choice(input.config.transport).value(),
             input.main, input.cluster.server_endpoints, input.logger) {}

  void init_worker() override { ops_.init_worker(); }
  void stop_worker() override { ops_.stop_worker(); }
  void barrier_worker() override { ops_.barrier_worker(); }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return ops_.all_reduce_worker(values);
  }

  fluid::ShardRange shards() const override { return ops_.shards(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    ops_.begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    ops_.end_step(program, step);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    return ops_.run(call);
  }
  const fluid::Program* checkpoint_program() const override { return ops_.checkpoint_program(); }
  bool gather_persistables(fluid::Scope& scope) override { return ops_.gather_persistables(scope); }
  void spread_persistables(fluid::Scope& scope) override { ops_.spread_persistables(scope); }

 private:
  WorkerRuntime ops_;
};

class SyncServerProcess final : public StrategyRuntime {
 public:
  SyncServerProcess(ParameterServerConfig config, const StrategyInput& input)
      : ops_(std::move(config), transport::parse_transport_choice(input.config.transport).value(),
             input.logger) {}

  void init_worker() override { refuse("init_worker"); }
  void stop_worker() override { refuse("stop_worker"); }
  void barrier_worker() override { refuse("barrier_worker"); }
  std::vector<double> all_reduce_worker(std::span<const double>) override {
    refuse("all_reduce_worker");
  }

  fluid::ShardRange shards() const override { return ops_.shards(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    ops_.begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    ops_.end_step(program, step);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    return ops_.run(call);
  }

 private:
  [[noreturn]] static void refuse(const char* call) {
    throw_error(
        ErrorCode::kPrecondition,
        {.what = "this process is a server", .where = call, .fix = "call run_server() in servers"});
  }

  ServerRuntime ops_;
};

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
    ParameterServerConfig config = config_of(input, *this, shards);
    std::shared_ptr<StrategyRuntime> runtime;
    if (input.cluster.is_server()) {
      runtime = std::make_shared<SyncServerProcess>(std::move(config), input);
    } else {
      runtime = std::make_shared<SyncWorker>(std::move(config), input);
    }
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
