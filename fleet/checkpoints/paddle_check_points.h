// Checkpoints in the form of Paddle's collective Fleet, which Paddle reads, and whose it reads:
//
//   __paddle_fleet_checkpoint__.3/
//     _paddle_fleet_param__   the persistable variables, sorted by name, in Paddle's combined form
//     fleet_train_status      JSON: epoch_no, and step, which Paddle neither writes nor looks at
#pragma once

#include <filesystem>
#include <optional>

#include "fleet/checkpoints/policy.h"
#include "fluid/executor/executor.h"
#include "strategies/runtime/strategy_runtime.h"

namespace fleet {

// Every worker makes the same calls, between two steps.
class PaddleCheckPoints {
 public:
  // `origin`: the program before it was rewritten, whose variables are saved. `first`: this is the
  // worker that writes. All must outlive it.
  PaddleCheckPoints(strategies::StrategyRuntime& runtime, const fluid::Program& origin, bool first)
      : runtime_(runtime), origin_(origin), first_(first) {}

  // Returns when it is there. Throws ResourceError, at every worker, when it cannot be written.
  void save(fluid::Executor& executor, const std::filesystem::path& root,
            const TrainStatus& status);
  // The newest; none where there is none. TrainStatus::step is 0 for one that Paddle has written.
  // Throws ResourceError for what is damaged, ProgramError for another program's.
  std::optional<TrainStatus> load(fluid::Executor& executor, const std::filesystem::path& root);

 private:
  strategies::StrategyRuntime& runtime_;
  const fluid::Program& origin_;
  const bool first_;
};

// Takes away all but the newest `keep`, at least one. Throws ResourceError.
void remove_old_check_points(const std::filesystem::path& root, int keep);

}  // namespace fleet
