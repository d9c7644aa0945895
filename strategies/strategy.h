// What a distributed_optimizer picks: a handle to a strategy (strategies/runtime/strategy.h).
#pragma once

#include <memory>
#include <utility>

#include "role_maker/cluster_spec.h"
#include "strategies/runtime/strategy.h"

namespace fleet::strategies {

// The number of parts that a step is cut into: what was asked for, or `gradient_merge` for each
// worker. Throws UsageError when there are fewer than workers.
int resolve_logical_shards(int asked, const role_maker::ClusterSpec& cluster,
                           int gradient_merge = 1);

// Throws UsageError when it is no number of parts, or logical_shards says another one. `strategy`:
// whose options they are.
void check_gradient_merge(const char* strategy, int gradient_merge, int logical_shards);

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
