// What a distributed_optimizer picks: a strategy rewrites the programs of one process and brings
// the runtime that they talk to. Derive from Strategy to bring your own.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "role_maker/cluster_spec.h"
#include "strategies/config/runtime_config.h"
#include "strategies/parameter_server/observer.h"
#include "strategies/runtime/strategy_runtime.h"

namespace fleet::transpiler {
struct DistributeTranspilerConfig;
}

namespace fleet::strategies {

// The user's programs after the optimizer's minimize, and what this process is.
struct StrategyInput {
  const fluid::Program& main;
  const fluid::Program& startup;
  const role_maker::ClusterSpec& cluster;
  const RuntimeConfig& config;
  Logger logger;
  // What people may ask this process; never null in programs that the facade makes.
  std::shared_ptr<JobObserver> observer = {};
  // This process tells the log what it transpiles (DistributeTranspilerConfig::print_log).
  bool print_log = false;
};

struct StrategyResult {
  fluid::Program main;
  fluid::Program startup;
  // Attached to both programs.
  std::shared_ptr<StrategyRuntime> runtime;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  // Throws UsageError when the options contradict each other or the cluster.
  virtual StrategyResult rewrite(const StrategyInput& input) const = 0;
  // A line for each option: name, value, origin.
  virtual std::string to_string() const = 0;
  // The same, with what the environment set; for people. The other one is what the processes of a
  // job compare.
  virtual std::string describe(const RuntimeConfig&) const { return to_string(); }
  // How rewrite transpiles, for tools that do the same; null when that says nothing of it.
  virtual std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const {
    return nullptr;
  }
};

// The number of parts that a step is cut into: what was asked for, or one for each worker. Throws
// UsageError when there are fewer than workers.
int resolve_logical_shards(int asked, const role_maker::ClusterSpec& cluster);

// A handle to a strategy, made from any of the strategy structs (SyncStrategy, AsyncStrategy, …,
// GradAllReduceStrategy, LocalSgdStrategy, collective::DistributedStrategy), from a transpiler's
// configuration, or from a Strategy of the user's own. A default-made one picks by mode:
// SyncStrategy with parameter servers, GradAllReduceStrategy in a collective job.
class DistributedStrategy {
 public:
  DistributedStrategy() = default;
  template <class Options>
  requires requires(const Options& options) {
    { options.make() } -> std::convertible_to<std::shared_ptr<const Strategy>>;
  }
  DistributedStrategy(const Options& options) : strategy_(options.make()) {}
  // What Paddle Fluid's Fleet makes of a configuration: sync_mode SyncStrategy; with
  // runtime_split_send_recv GeoStrategy, HalfAsyncStrategy, SyncStrategy's runtime-split form or
  // AsyncStrategy by its other fields, without it HalfAsyncStrategy; mode collective or nccl2
  // GradAllReduceStrategy or LocalSgdStrategy. Throws UsageError for one that contradicts itself.
  DistributedStrategy(const transpiler::DistributeTranspilerConfig& config);
  DistributedStrategy(std::shared_ptr<const Strategy> strategy) : strategy_(std::move(strategy)) {}

  // Null for a default-made handle.
  const std::shared_ptr<const Strategy>& get() const { return strategy_; }

 private:
  std::shared_ptr<const Strategy> strategy_;
};

}  // namespace fleet::strategies
