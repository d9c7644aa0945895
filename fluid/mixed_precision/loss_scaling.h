// Loss scaling: the loss is multiplied by a factor, and gradients divided by it, so that small ones
// are not lost in float16. A dynamic factor follows what the gradients can bear.
#pragma once

#include <vector>

#include "fluid/backward/backward.h"
#include "fluid/mixed_precision/options.h"

namespace fleet::fluid::mixed_precision {

// Throws UsageError for options that make no sense.
void validate(const LossScalingOptions& options);

// Of one program. Its variables are persistable: float32 loss_scaling_0 [1], and of dynamic scaling
// int32 num_good_steps_0 and num_bad_steps_0 [1].
class LossScaling {
 public:
  // Makes them in the default programs.
  explicit LossScaling(const LossScalingOptions& options);

  const Variable& factor() const { return factor_; }
  // loss * factor.
  Variable scaled(const Variable& loss) const;
  // gradient / factor, by ops of role optimize; of rows, gradient * (1 / factor).
  std::vector<ParamGrad> unscaled(const std::vector<ParamGrad>& pairs) const;
  // Dynamic scaling: looks whether all of these gradients are finite, and has the factor follow. In
  // a step where one is not, all become zero. All ops have role optimize, so that ranks decide on
  // their common gradients, once a step.
  void follow(const std::vector<ParamGrad>& pairs) const;

 private:
  LossScalingOptions options_;
  Variable factor_;
  Variable good_steps_;
  Variable bad_steps_;
};

}  // namespace fleet::fluid::mixed_precision
