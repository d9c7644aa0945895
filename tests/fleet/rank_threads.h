// A collective job of threads in one process: one thread for every rank. For tests.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "strategies/collective/collective_runtime.h"
#include "strategies/collective/device_ranks.h"
#include "tests/testing/thread_cluster.h"
#include "transpiler/config.h"

namespace fleet::testing {

struct RankJob {
  int ranks = 2;
  int shards = 0;  // 0: one for each rank
  transpiler::DistributeTranspilerConfig config = {.mode = "collective",
                                                   .collective_mode = "grad_allreduce"};
  std::optional<strategies::LocalSgdOptions> local_sgd = {};
  // What each rank has for sums on devices; empty: they go over host memory.
  std::function<strategies::DeviceRanksOptions(int rank)> devices = nullptr;
  // Steps of single ranks, by index, where they differ from the task's.
  std::vector<int> uneven_steps = {};
};

struct RankOutcome {
  std::vector<std::vector<float>> losses;  // by rank and step: the mean over its own shards
  std::vector<Values> persistables;        // by rank, at the end
};

// A rank that fails is a failure of the test.
RankOutcome train_in_ranks(const TrainingTask& task, const RankJob& job);

}  // namespace fleet::testing
