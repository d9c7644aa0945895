// Steps that a device may still be working on, and whose watch has not been told what was not
// finite in them.
#pragma once

#include <memory>
#include <vector>

#include "fluid/core/device_memory.h"
#include "fluid/executor/workspace_impl.h"

namespace fleet::fluid {

// Used by the thread of its executor.
class UnseenSteps {
 public:
  // `step` has a watch, and words of its own until it is looked at; its work is over when `end` is
  // reached, or already, without one. `checks` stays until forget().
  void leave(const FiniteChecks& checks, const Workspace::Step& step,
             std::unique_ptr<DevicePoint> end);
  // Waits for them, in their order, and tells their watches, but those of jobs that are over. None
  // is left, also when a watch throws.
  void look();
  void forget(const FiniteChecks& checks);

 private:
  struct Unseen {
    const FiniteChecks* checks = nullptr;
    Workspace::Step step;
    std::weak_ptr<Keeper> job;  // whose the watch is, where step.watched_by says so
    std::unique_ptr<DevicePoint> end;
  };
  std::vector<Unseen> steps_;
};

}  // namespace fleet::fluid
