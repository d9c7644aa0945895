#include "strategies/jobs/step_watch.h"

#include <utility>

#include "base/strings.h"
#include "strategies/jobs/server_job.h"
#include "strategies/parameter_server/finite_guard.h"

namespace fleet::strategies {
namespace {

class StepWatch final : public fluid::FiniteWatch {
 public:
  StepWatch(StrategyRuntime& runtime, OnNonfinite policy, int worker,
            std::shared_ptr<JobObserver> observer, Logger logger)
      : runtime_(runtime),
        guard_(policy, str_cat("worker ", worker), std::move(observer), std::move(logger)) {}

  void on_nonfinite(const fluid::Nonfinite& found) override {
    const Status status = guard_.report(found);
    if (status.ok()) return;
    runtime_.abort_worker(status, found.step);
    status.throw_if_error();
  }

 private:
  StrategyRuntime& runtime_;  // that has this
  FiniteGuard guard_;
};

}  // namespace

void watch_steps(StrategyRuntime& runtime, const RuntimeConfig& config, int worker,
                 std::shared_ptr<JobObserver> observer, Logger logger) {
  runtime.set_finite_watch(std::make_shared<StepWatch>(runtime, on_nonfinite(config), worker,
                                                       std::move(observer), std::move(logger)));
}

}  // namespace fleet::strategies
