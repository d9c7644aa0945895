#include "strategies/jobs/sync_runtime.h"

#include "strategies/jobs/process_runtime_impl.h"
#include "strategies/parameter_server/synchronous/server_runtime.h"
#include "strategies/parameter_server/synchronous/worker_runtime.h"

namespace fleet::strategies {

OnNonfinite on_nonfinite(const RuntimeConfig& config) {
  return config.on_nonfinite == "warn" ? OnNonfinite::kWarn : OnNonfinite::kStop;
}

ParameterServerConfig server_config(const RuntimeConfig& config,
                                    const std::vector<std::string>& endpoints) {
  using std::chrono::milliseconds;
  ParameterServerConfig result;
  for (const std::string& endpoint : endpoints) {
    result.servers.push_back(transport::Endpoint::parse(endpoint).value());
  }
  result.require_same_bits = config.require_same_bits;
  result.data_lanes = static_cast<uint32_t>(config.data_lanes);
  result.send_buffer = static_cast<size_t>(config.send_buffer);
  result.on_nonfinite = on_nonfinite(config);
  if (!config.server_folders.empty()) {
    result.save_folders.clear();
    for (const auto& folder : split(config.server_folders, ':')) {
      if (!folder.empty()) result.save_folders.emplace_back(folder);
    }
  }
  result.rpc_deadline = milliseconds(config.rpc_deadline_ms);
  result.heartbeat_interval = milliseconds(config.heartbeat_interval_ms);
  result.heartbeat_timeout = milliseconds(config.heartbeat_timeout_ms);
  result.reconnect_grace.remote = milliseconds(config.reconnect_grace_ms);
  result.stall_report = milliseconds(config.stall_report_ms);
  result.stall_deadline = milliseconds(config.stall_deadline_ms);
  return result;
}

std::shared_ptr<StrategyRuntime> make_sync_worker(SyncJob job, fluid::Program origin) {
  return std::make_shared<WorkerProcess<WorkerRuntime>>(std::move(job.config), job.transport,
                                                        std::move(origin),
                                                        std::move(job.server_names), job.logger);
}

std::shared_ptr<StrategyRuntime> make_sync_server(SyncJob job) {
  return std::make_shared<ServerProcess<ServerRuntime>>(std::move(job.config), job.transport,
                                                        job.logger);
}

}  // namespace fleet::strategies
