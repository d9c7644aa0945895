// The runtimes of synchronous parameter-server jobs as strategies hand them out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategies/parameter_server/config.h"
#include "strategies/strategy.h"

namespace fleet::strategies {

struct SyncJob {
  ParameterServerConfig config;
  transport::TransportChoice transport = transport::TransportChoice::kAuto;
  // The servers' endpoints as programs name them, by index.
  std::vector<std::string> server_names;
  Logger logger;
};

// Deadlines and lanes of the runtime's configuration, and the servers' addresses.
ParameterServerConfig server_config(const RuntimeConfig& config,
                                    const std::vector<std::string>& endpoints);

// `origin` is the program before it was transpiled; it says what a checkpoint holds.
std::shared_ptr<StrategyRuntime> make_sync_worker(SyncJob job, fluid::Program origin);
std::shared_ptr<StrategyRuntime> make_sync_server(SyncJob job);

// What the configuration says in words.
OnNonfinite on_nonfinite(const RuntimeConfig& config);

}  // namespace fleet::strategies
