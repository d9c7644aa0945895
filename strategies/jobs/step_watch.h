// Workers look at their losses and at what they update.
#pragma once

#include <memory>

#include "strategies/runtime/strategy.h"

namespace fleet::strategies {

// From here on steps that the runtime runs are looked at: a loss or an updated parameter that is
// not finite is told, and unless FLEET_ON_NONFINITE says otherwise, ends the job. The observer may
// be null.
void watch_steps(StrategyRuntime& runtime, const RuntimeConfig& config, int worker,
                 std::shared_ptr<JobObserver> observer, Logger logger);

}  // namespace fleet::strategies
