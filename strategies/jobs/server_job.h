// What the strategies with parameter servers have in common: checks, the job's configuration, and
// how it is printed.
#pragma once

#include <map>
#include <string>

#include "strategies/config/options_text.h"
#include "strategies/config/server_mode_config.h"
#include "strategies/jobs/sync_runtime.h"
#include "strategies/strategy.h"
#include "transpiler/config.h"

namespace fleet::strategies {

// Throws UsageError that names the strategy when the job has no parameter servers.
void require_servers(const StrategyInput& input, const char* strategy);

// The code's configurations over what the environment said.
struct ServerModeConfig {
  TrainerRuntimeConfig trainer;
  ServerRuntimeConfig server;

  ServerModeConfig(const TrainerRuntimeConfig& trainer_code, const ServerRuntimeConfig& server_code,
                   const RuntimeConfig& runtime)
      : trainer(trainer_code.over(runtime.trainer, runtime.cpu_num)),
        server(server_code.over(runtime.server)) {}

  // Both, a line for each key.
  std::string to_string() const;
};

// What every process of a job with servers is told, with the facade and without. The facts are
// `own_facts` and what bits depend on. Provides the file descriptors that the process needs: throws
// UsageError (kInput) where there are too few, PeerError when the job has no secret.
SyncJob make_common_job(const role_maker::ClusterSpec& cluster, const RuntimeConfig& config,
                        std::map<std::string, std::string> own_facts, Logger logger);

SyncJob make_server_job(const StrategyInput& input, const Strategy& strategy, int shards,
                        const ServerModeConfig& config);

}  // namespace fleet::strategies
