#include "strategies/jobs/server_job.h"

#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/process/descriptors.h"
#include "base/strings.h"
#include "strategies/jobs/job_identity.h"

namespace fleet::strategies {
void require_servers(const StrategyInput& input, const char* strategy) {
  if (input.cluster.mode == role_maker::Mode::kParameterServer) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "this strategy needs parameter servers",
               .where = strategy,
               .expected = "mode parameter_server",
               .got = "mode " + std::string(role_maker::to_string(input.cluster.mode)),
               .fix = "start the processes with launch_ps"});
}

std::string ServerModeConfig::to_string() const {
  return str_cat("trainer_runtime_config\n", trainer.to_string(), "server_runtime_config\n",
                 server.to_string());
}

SyncJob make_common_job(const role_maker::ClusterSpec& cluster, const RuntimeConfig& config,
                        std::map<std::string, std::string> own_facts, Logger logger) {
  SyncJob job{.config = server_config(config, cluster.server_endpoints),
              .transport = transport::parse_transport_choice(config.transport).value(),
              .server_names = cluster.server_endpoints,
              .logger = std::move(logger)};
  job.config.index = static_cast<uint32_t>(cluster.index);
  job.config.worker_num = static_cast<uint32_t>(cluster.worker_num);
  job.config.job_id = choose_job_id(config, cluster);
  job.config.secret = choose_job_secret(config, cluster);
  job.config.facts = bits_facts();
  job.config.facts.merge(own_facts);
  const auto role = cluster.is_server() ? transport::Role::kServer : transport::Role::kWorker;
  provide_descriptors(descriptors_of(job.config, role), cluster.process_name()).throw_if_error();
  return job;
}

SyncJob make_server_job(const StrategyInput& input, const Strategy& strategy, int shards,
                        const ServerModeConfig& config) {
  SyncJob job =
      make_common_job(input.cluster, input.config, job_facts(input, strategy), input.logger);
  job.config.logical_shards = static_cast<uint32_t>(shards);
  job.config.observer = input.observer;
  job.config.rpc_deadline = std::chrono::milliseconds(config.trainer.rpc_deadline);
  return job;
}

}  // namespace fleet::strategies
