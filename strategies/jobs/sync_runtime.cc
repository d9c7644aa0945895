#include "strategies/jobs/sync_runtime.h"

#include "base/error.h"
#include "strategies/parameter_server/synchronous/server_runtime.h"
#include "strategies/parameter_server/synchronous/worker_runtime.h"

namespace fleet::strategies {
namespace {

// A worker's place in the job, as the facade wants it.
class SyncWorker final : public StrategyRuntime {
 public:
  SyncWorker(SyncJob job, fluid::Program origin)
      : ops_(std::move(job.config), job.transport, std::move(origin), std::move(job.server_names),
             job.logger) {}

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
  explicit SyncServerProcess(SyncJob job)
      : ops_(std::move(job.config), job.transport, job.logger) {}

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

}  // namespace

ParameterServerConfig server_config(const RuntimeConfig& config,
                                    const std::vector<std::string>& endpoints) {
  using std::chrono::milliseconds;
  ParameterServerConfig result;
  for (const std::string& endpoint : endpoints) {
    result.servers.push_back(transport::Endpoint::parse(endpoint).value());
  }
  result.require_same_bits = config.require_same_bits;
  result.data_lanes = static_cast<uint32_t>(config.data_lanes);
  result.rpc_deadline = milliseconds(config.rpc_deadline_ms);
  result.heartbeat_interval = milliseconds(config.heartbeat_interval_ms);
  result.heartbeat_timeout = milliseconds(config.heartbeat_timeout_ms);
  result.stall_report = milliseconds(config.stall_report_ms);
  result.stall_deadline = milliseconds(config.stall_deadline_ms);
  return result;
}

std::shared_ptr<StrategyRuntime> make_sync_worker(SyncJob job, fluid::Program origin) {
  return std::make_shared<SyncWorker>(std::move(job), std::move(origin));
}

std::shared_ptr<StrategyRuntime> make_sync_server(SyncJob job) {
  return std::make_shared<SyncServerProcess>(std::move(job));
}

}  // namespace fleet::strategies
