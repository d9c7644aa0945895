// A LocalSGD job: workers that train alone, with momentum and on rows of their own, and average
// their parameters when the policy of real jobs (strategies/collective/local_sgd_schedule.h) says
// so.
#pragma once

#include <cstdint>

#include "strategies/collective/local_sgd_schedule.h"

#include "experiments/testbed.h"

namespace fleet::experiments {

struct LocalSgdRun {
  int workers = 8;
  double rate = 0.1;
  double momentum = 0.9;
  int64_t batch_size = 16;
  int64_t epochs = 100;  // over all workers together
  uint64_t seed = 0;
  strategies::LocalSgdOptions schedule;
};

struct LocalSgdOutcome {
  double test_error = 0;  // percent, of the averaged parameters
  double train_loss = 0;
  int64_t averages = 0;
  int64_t steps = 0;  // of each worker
};

LocalSgdOutcome run_local_sgd(Model& model, const ClassificationData& data, const LocalSgdRun& run);

}  // namespace fleet::experiments
