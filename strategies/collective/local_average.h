// The average of the workers' parameters in a LocalSGD job: what op c_local_sgd does.
#pragma once

#include <cstdint>
#include <vector>

#include "fluid/kernels/comm_runtime.h"
#include "strategies/collective/gradient_reducer.h"
#include "strategies/collective/local_sgd_schedule.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

// Used by one thread.
class LocalAverage {
 public:
  // Throws as validate(options) does.
  LocalAverage(const LocalSgdOptions& options, GradientReducerOptions waits);

  // The reductions of an average of the parameters that the op names, in order.
  std::vector<ReductionShape> shapes(const fluid::Block& block, const fluid::Operator& op) const;

  // Counts the step whose op this is; true when the workers average after it.
  bool step(const fluid::CommCall& call);
  // Averages the op's parameters over `workers` contributors; the others gave zeros.
  void average(const fluid::CommCall& call, transport::CollectiveCommunicator& communicator,
               const transport::ShardLayout& one_each, int64_t workers);
  // Averages values outside of a step; the schedule does not count it.
  void average(std::vector<fluid::Tensor*> values, transport::CollectiveCommunicator& communicator,
               const transport::ShardLayout& one_each, int64_t workers);

  const LocalSgdSchedule& schedule() const { return schedule_; }
  LocalSgdSchedule& schedule() { return schedule_; }

 private:
  double mean_loss(transport::CollectiveCommunicator& communicator,
                   const transport::ShardLayout& one_each, int64_t workers);

  LocalSgdSchedule schedule_;
  GradientReducerOptions waits_;
  Buffer packed_;
};

}  // namespace fleet::strategies
