// A strategy rewrites the programs of one process and brings the runtime that they talk to. Derive
// from Strategy to bring your own; strategies/strategy.h has the handle that carries one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "fluid/mixed_precision/options.h"
#include "fluid/program/program.h"
#include "role_maker/cluster_spec.h"
#include "strategies/config/runtime_config.h"
#include "strategies/runtime/strategy_runtime.h"

namespace fleet::transpiler {
struct DistributeTranspilerConfig;
}

namespace fleet::strategies {

struct JobObserver;  // strategies/parameter_server/observer.h

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
  // Variables of the forward part that backward keeps, where it computes the others again
  // (fluid::optimizer::MinimizeOptions::checkpoints). None: it keeps all.
  virtual std::vector<std::string> recompute_checkpoints() const { return {}; }
  // How the forward part is to be rewritten for mixed precision, by a facade that has an optimizer
  // which does not do it itself; none: not at all.
  virtual std::optional<fluid::mixed_precision::Options> mixed_precision() const {
    return std::nullopt;
  }
  // How rewrite transpiles, for tools that do the same; null when that says nothing of it.
  virtual std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const {
    return nullptr;
  }
};

}  // namespace fleet::strategies
