// LocalSGD: workers train alone, and average their parameters now and then.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fluid/mixed_precision/options.h"
#include "strategies/collective/local_sgd_schedule.h"
#include "strategies/strategy.h"

namespace fleet::strategies {

// Optimizer state stays each worker's own. A worker that has run out of data calls stop_worker like
// any other; the averages are then those of the workers that still train. What is saved is the
// average of the workers that save. With interval 1 and SGD it equals SyncStrategy to rounding.
//
//   fleet::distributed_optimizer(sgd, strategies::LocalSgdStrategy{{.interval = 8}});
struct LocalSgdStrategy {
  LocalSgdOptions options = {};
  // As GradAllReduceStrategy has it.
  std::vector<std::string> recompute_checkpoints = {};
  // As GradAllReduceStrategy has it; workers decide alone, each with a scale of its own.
  std::optional<fluid::mixed_precision::Options> amp = {};

  std::shared_ptr<const Strategy> make() const;
};

}  // namespace fleet::strategies
