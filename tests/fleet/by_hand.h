// What workers that update by themselves exchange, done on one machine with plain loops: what jobs
// of GEO, EASGD and LocalSGD are held against. For tests.
#pragma once

#include <vector>

#include "strategies/parameter_server/async_options.h"
#include "tests/testing/thread_cluster.h"

namespace fleet::testing {

struct HandOutcome {
  std::vector<std::vector<float>> losses;  // by worker and step
  std::vector<Values> persistables;        // by worker, at the end
};

// One worker that exchanges with its servers every so many steps. GEO or EASGD.
HandOutcome exchange_by_hand(const TrainingTask& task, fluid::ServerMode mode, int interval);

// What ranks of LocalSGD average.
enum class Averaged { kParameters, kChanges };

// A power of two of ranks, one after the other, which average every so many steps.
HandOutcome average_by_hand(const TrainingTask& task, int ranks, int interval, Averaged averaged);

}  // namespace fleet::testing
