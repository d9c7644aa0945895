#include "strategies/runtime/strategy_runtime.h"

#include <algorithm>

namespace fleet::strategies {

// Each gives 1 for a step that it can take, 0 for another, and 1 behind them all.
int StrategyRuntime::common_steps(int mine, int most) {
  std::vector<double> can(static_cast<size_t>(most) + 1, 0.0);
  std::fill_n(can.begin(), std::min(mine, most), 1.0);
  can.back() = 1.0;
  const std::vector<double> sums = all_reduce_training(can);
  int common = 0;
  while (common < most && sums[static_cast<size_t>(common)] == sums.back()) ++common;
  return common;
}

}  // namespace fleet::strategies
