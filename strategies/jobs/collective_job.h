// The runtime of a job without servers, as strategies hand it out: what its ops and the facade
// call, on the group of its ranks (collective_group.h).
#pragma once

#include <memory>

#include "strategies/collective/collective_runtime.h"
#include "strategies/runtime/strategy.h"

namespace fleet::strategies {

// Throws UsageError that names the strategy when the job is not collective.
void require_collective(const StrategyInput& input, const char* strategy);

// `main` is the rewritten program of a step.
std::shared_ptr<StrategyRuntime> make_collective_runtime(const StrategyInput& input,
                                                         const Strategy& strategy,
                                                         const fluid::Program& main,
                                                         CollectiveRuntimeOptions options);

// The job of a program that was transpiled for ranks (fluid::read_rank_place).
struct TranspiledRanks {
  const fluid::Program& program;
  const role_maker::ClusterSpec& cluster;
  const RuntimeConfig& config;
  Logger logger;
};
std::shared_ptr<StrategyRuntime> make_transpiled_runtime(const TranspiledRanks& job,
                                                         CollectiveRuntimeOptions options);

}  // namespace fleet::strategies
