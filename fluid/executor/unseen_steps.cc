#include <utility>

#include "fluid/executor/finite_checks_impl.h"
#include "fluid/executor/unseen_steps_impl.h"

namespace fleet::fluid {

void UnseenSteps::leave(const FiniteChecks& checks, const Workspace::Step& step,
                        std::unique_ptr<DevicePoint> end) {
  Unseen unseen{.checks = &checks, .step = step, .job = {}, .end = std::move(end)};
  unseen.step.feeds = {};
  if (step.watched_by != nullptr) unseen.job = step.watched_by->weak_from_this();
  steps_.push_back(std::move(unseen));
}

void UnseenSteps::look() {
  for (const Unseen& unseen : std::exchange(steps_, {})) {
    if (unseen.end != nullptr) unseen.end->wait();
    const std::shared_ptr<Keeper> job = unseen.job.lock();
    if (unseen.step.watched_by == nullptr || job != nullptr) {
      unseen.checks->watch_words(unseen.step);
    }
  }
}

void UnseenSteps::forget(const FiniteChecks& checks) {
  std::erase_if(steps_, [&checks](const Unseen& unseen) { return unseen.checks == &checks; });
}

}  // namespace fleet::fluid
