// What a process does about a loss, a parameter or gradients that are not finite.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "fluid/kernels/finite_watch.h"
#include "strategies/parameter_server/observer.h"

namespace fleet::strategies {

// Any thread.
class FiniteGuard {
 public:
  // `who`: "worker 1". The observer may be null.
  FiniteGuard(OnNonfinite policy, std::string who, std::shared_ptr<JobObserver> observer,
              Logger logger);

  // Tells the log and the observer of the first finding. An error when the job has to end, for
  // every finding. `sender`: the worker whose gradient made it.
  Status report(const fluid::Nonfinite& found, std::optional<uint32_t> sender = std::nullopt);

 private:
  void tell(const fluid::Nonfinite& found, const std::string& what, const std::string& value,
            std::optional<uint32_t> sender) const;

  const OnNonfinite policy_;
  const std::string who_;
  const std::shared_ptr<JobObserver> observer_;
  const Logger logger_;
  std::atomic<bool> told_{false};
};

}  // namespace fleet::strategies
