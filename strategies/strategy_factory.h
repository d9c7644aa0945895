// The factories of Paddle Fluid's Fleet. What they make are plain structs, to be changed before
// they are given to distributed_optimizer.
#pragma once

#include "strategies/async_strategy.h"
#include "strategies/sync_strategy.h"

namespace fleet::strategies {

class StrategyFactory {
 public:
  static SyncStrategy create_sync_strategy() { return {}; }
  static AsyncStrategy create_async_strategy() { return {}; }
  static HalfAsyncStrategy create_half_async_strategy() { return {}; }
  // Throws UsageError when the frequency is below 1.
  static GeoStrategy create_geo_strategy(int update_frequency = 100) {
    GeoStrategy strategy;
    strategy.update_frequency = update_frequency;
    (void)strategy.make();
    return strategy;
  }
};

}  // namespace fleet::strategies
