#include "strategies/jobs/server_job.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/process/descriptors.h"
#include "base/strings.h"
#include "strategies/jobs/job_identity.h"
#include "strategies/parameter_server/server/server_runtime.h"
#include "strategies/parameter_server/worker/worker_runtime.h"

namespace fleet::strategies {
namespace {

// Deadlines and lanes of the runtime's configuration, and the servers' addresses.
ParameterServerConfig server_config(const RuntimeConfig& config,
                                    const std::vector<std::string>& endpoints) {
  using std::chrono::milliseconds;
  ParameterServerConfig result;
  for (const std::string& endpoint : endpoints) {
    result.servers.push_back(Endpoint::parse(endpoint, "server_endpoints").value());
  }
  result.require_same_bits = config.require_same_bits;
  result.data_lanes = static_cast<uint32_t>(config.data_lanes);
  if (config.sparse_rows == "float16") result.narrow_rows = fluid::DType::kFloat16;
  if (config.sparse_rows == "bfloat16") result.narrow_rows = fluid::DType::kBFloat16;
  result.hot_row_steps = static_cast<uint32_t>(config.hot_row_steps);
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

}  // namespace

OnNonfinite on_nonfinite(const RuntimeConfig& config) {
  return config.on_nonfinite == "warn" ? OnNonfinite::kWarn : OnNonfinite::kStop;
}

void require_servers(const StrategyInput& input, const char* strategy) {
  if (input.cluster.mode == role_maker::Mode::kParameterServer) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "this strategy needs parameter servers",
               .where = strategy,
               .expected = "mode parameter_server",
               .got = "mode " + std::string(role_maker::to_string(input.cluster.mode)),
               .fix = "start the processes with launch_ps"});
}

std::string ServerJobConfigs::to_string() const {
  return str_cat("trainer_runtime_config\n", trainer.to_string(), "server_runtime_config\n",
                 server.to_string());
}

ServerJob make_common_job(const role_maker::ClusterSpec& cluster, const RuntimeConfig& config,
                          std::map<std::string, std::string> own_facts, Logger logger) {
  ServerJob job{.config = server_config(config, cluster.server_endpoints),
                .transport = transport::parse_transport_choice(config.transport).value(),
                .server_names = cluster.server_endpoints,
                .logger = std::move(logger)};
  job.config.index = static_cast<uint32_t>(cluster.index);
  job.config.worker_num = static_cast<uint32_t>(cluster.worker_num);
  job.config.job_id = choose_job_id(config, cluster);
  job.config.secret = choose_job_secret(config, cluster);
  job.config.facts = bits_facts();
  job.config.facts.emplace("sparse rows", config.sparse_rows);
  job.config.facts.merge(own_facts);
  const auto role =
      cluster.is_server() ? transport::PeerRole::kServer : transport::PeerRole::kWorker;
  provide_descriptors(descriptors_of(job.config, role), cluster.process_name()).throw_if_error();
  return job;
}

ServerJob make_server_job(const StrategyInput& input, const Strategy& strategy, int shards,
                          const ServerJobConfigs& config) {
  ServerJob job =
      make_common_job(input.cluster, input.config, job_facts(input, strategy), input.logger);
  job.config.logical_shards = static_cast<uint32_t>(shards);
  job.config.observer = input.observer;
  job.config.rpc_deadline = std::chrono::milliseconds(config.trainer.rpc_deadline);
  return job;
}

AsyncOptions configured(AsyncOptions options, const TrainerRuntimeConfig& trainer, int64_t cpu_num,
                        bool merge_by_sum) {
  options.trainer_threads = static_cast<uint32_t>(cpu_num);
  options.thread_pool_size = static_cast<uint32_t>(trainer.communicator_thread_pool_size);
  if (options.staleness_bound || sends_differences(options.mode)) {
    return options;
  }
  options.max_merge_var_num = static_cast<uint32_t>(trainer.communicator_max_merge_var_num);
  options.send_queue_size = static_cast<uint32_t>(trainer.communicator_send_queue_size);
  options.min_send_grad_num_before_recv =
      static_cast<uint32_t>(trainer.communicator_min_send_grad_num_before_recv);
  options.independent_recv = trainer.communicator_independent_recv_thread;
  options.merge_by_sum = trainer.origins.count("communicator_is_sgd_optimizer") > 0
                             ? trainer.communicator_is_sgd_optimizer
                             : merge_by_sum;
  return options;
}

std::shared_ptr<StrategyRuntime> make_runtime(ServerJob job, bool is_server,
                                              fluid::Program origin) {
  if (!is_synchronous(job.options.mode)) {
    validate(job.options);
    for (const auto& [name, value] : async_facts(job.options)) {
      job.config.facts.emplace(name, value);
    }
  }
  if (is_server) {
    return std::make_shared<ServerRuntime>(std::move(job.config), job.options, job.transport,
                                           job.logger);
  }
  return std::make_shared<WorkerRuntime>(job.config, job.options, job.transport, std::move(origin),
                                         std::move(job.server_names), job.logger);
}

}  // namespace fleet::strategies
