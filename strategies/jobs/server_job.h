// What the strategies with parameter servers have in common: checks, the job's configuration, and
// how it is printed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strategies/config/fleet_runtime_config.h"
#include "strategies/config/options_text.h"
#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/config.h"
#include "strategies/runtime/strategy.h"
#include "transpiler/config.h"

namespace fleet::strategies {

struct ServerJob {
  ParameterServerConfig config;
  AsyncOptions options = {.mode = ServerMode::kSync};
  transport::TransportChoice transport = transport::TransportChoice::kAuto;
  // The servers' endpoints as programs name them, by index.
  std::vector<std::string> server_names;
  Logger logger;
};

// Throws UsageError that names the strategy when the job has no parameter servers.
void require_servers(const StrategyInput& input, const char* strategy);

// The code's configurations over what the environment said.
struct ServerJobConfigs {
  TrainerRuntimeConfig trainer;
  ServerRuntimeConfig server;

  ServerJobConfigs(const TrainerRuntimeConfig& trainer_code, const ServerRuntimeConfig& server_code,
                   const RuntimeConfig& runtime)
      : trainer(trainer_code.over(runtime.trainer, runtime.cpu_num)),
        server(server_code.over(runtime.server)) {}

  // Both, a line for each key.
  std::string to_string() const;
};

// What every process of a job with servers is told, with the facade and without. The facts are
// `own_facts` and what bits depend on. Provides the file descriptors that the process needs: throws
// UsageError (kInput) where there are too few, PeerError when the job has no secret.
ServerJob make_common_job(const role_maker::ClusterSpec& cluster, const RuntimeConfig& config,
                          std::map<std::string, std::string> own_facts, Logger logger);

ServerJob make_server_job(const StrategyInput& input, const Strategy& strategy, int shards,
                          const ServerJobConfigs& config);

// The options with what the job's configuration says about queues, merges and threads over them.
// `merge_by_sum` counts where the configuration does not say communicator_is_sgd_optimizer.
AsyncOptions configured(AsyncOptions options, const TrainerRuntimeConfig& trainer, int64_t cpu_num,
                        bool merge_by_sum);

// The runtime of a worker or server. `origin` is the program before it was transpiled; it says what
// a checkpoint holds. Throws UsageError when the options are not valid.
std::shared_ptr<StrategyRuntime> make_runtime(ServerJob job, bool is_server, fluid::Program origin);

// What the configuration says in words.
OnNonfinite on_nonfinite(const RuntimeConfig& config);

}  // namespace fleet::strategies
