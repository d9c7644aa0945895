// What updates of a server's slices make that is not finite.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "fluid/core/value.h"
#include "fluid/kernels/finite_watch.h"

namespace fleet::strategies {

// Any thread.
class ParameterWatch final : public fluid::FiniteWatch {
 public:
  void on_nonfinite(const fluid::Nonfinite& found) override;
  // Of a value that no update op made: the slice after `step`, in the rows that the gradient names
  // where that is of rows.
  void look_at(const std::string& name, const fluid::Tensor& slice, const fluid::Value& gradient,
               uint64_t step);
  // What came since the last call, the first of it.
  std::optional<fluid::Nonfinite> take();

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;  // guards what follows
  std::optional<fluid::Nonfinite> found_;
};

}  // namespace fleet::strategies
