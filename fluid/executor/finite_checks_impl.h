// Values that are not finite: the op that made the first of them (check_nan_inf), and losses and
// parameters, for whoever watches a job (fluid/kernels/finite_watch.h).
#pragma once

#include <optional>
#include <vector>

#include "fluid/executor/workspace_impl.h"
#include "fluid/ops/optimize/loss_scaling.h"

namespace fleet::fluid {

// Looks at the values of one workspace, which must outlive it.
class FiniteChecks {
 public:
  explicit FiniteChecks(const Workspace& workspace);

  // Throws an error of code numerics when an output of op k has an element that is not finite.
  // `written`: as in watch(); a growing table is looked at when it is not finite.
  void check_outputs(int k, uint64_t step, double written) const;
  // Tells the step's watch of op k: a loss that is not finite, or a parameter, when `written`, the
  // sum of what an update wrote (KernelContext::add_written), is not. Of a program with dynamic
  // loss scaling no losses, but gradients, as FiniteWatch says. A loss on a device is told by
  // watch_words().
  void watch(const Workspace::Step& step, int k, double written) const;
  // Words that the device's work of a step writes (Workspace::Step::nonfinite_words).
  size_t words() const { return 1 + static_cast<size_t>(loss_count_); }
  // When that work is done: tells the step's watch of losses, and of every parameter of the plan
  // that is not finite, if an update says that there is one.
  void watch_words(const Workspace::Step& step) const;

 private:
  struct Loss {
    int var = -1;  // of the program, when the op makes it
    int word = 0;
  };

  const std::string& name_of(const Loss& loss) const;
  void watch_loss(const Workspace::Step& step, const Loss& loss) const;
  void watch_parameters(const Workspace::Step& step, const Plan& plan) const;
  void watch_scaling(const Workspace::Step& step) const;

  const Workspace& workspace_;
  std::optional<DynamicLossScaling> scaling_;
  std::vector<Loss> losses_;  // by op
  int loss_count_ = 0;
};

}  // namespace fleet::fluid
