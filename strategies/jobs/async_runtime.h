// The runtimes of asynchronous parameter-server jobs as strategies hand them out.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "strategies/parameter_server/asynchronous/async_options.h"
#include "strategies/parameter_server/config.h"
#include "strategies/strategy.h"

namespace fleet::strategies {

struct AsyncJob {
  ParameterServerConfig config;
  AsyncOptions options;
  transport::TransportChoice transport = transport::TransportChoice::kAuto;
  // The servers' endpoints as programs name them, by index.
  std::vector<std::string> server_names;
  Logger logger;
};

// The options with what the job's configuration says about queues, merges and threads over them.
// `merge_by_sum` counts where the configuration does not say communicator_is_sgd_optimizer.
AsyncOptions configured(AsyncOptions options, const TrainerRuntimeConfig& trainer, int64_t cpu_num,
                        bool merge_by_sum);

// `origin` is the program before it was transpiled; it says what a checkpoint holds. Throws
// UsageError when the options are not valid, or staleness_bound is 0 (that is sync_runtime.h's).
std::shared_ptr<StrategyRuntime> make_async_worker(AsyncJob job, fluid::Program origin);
std::shared_ptr<StrategyRuntime> make_async_server(AsyncJob job);

}  // namespace fleet::strategies
