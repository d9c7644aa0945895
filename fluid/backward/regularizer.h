// Weight decay and gradient clipping: ops between the backward part and the updates.
#pragma once

#include <optional>
#include <vector>

#include "fluid/backward/backward.h"

namespace fleet::fluid {

namespace regularizer {

// Adds coefficient * parameter (L2) or coefficient * sign(parameter) (L1) to its gradient.
Penalty L2Decay(double coefficient);
Penalty L1Decay(double coefficient);

}  // namespace regularizer

namespace clip {

// Each element into [min, max].
Penalty GradientClipByValue(double max, double min);
inline Penalty GradientClipByValue(double max) {
  return GradientClipByValue(max, -max);
}
// Each gradient g scaled by clip_norm / max(|g|, clip_norm).
Penalty GradientClipByNorm(double clip_norm);
// All gradients scaled by clip_norm / max(n, clip_norm), n the norm over all of them.
Penalty GradientClipByGlobalNorm(double clip_norm);

}  // namespace clip

// Appends the decay of each parameter: its own regularizer, or else `common`. Returns the pairs
// unchanged: the sum is written back to the gradient. Throws UsageError for an unknown kind.
std::vector<ParamGrad> append_regularization(const std::vector<ParamGrad>& pairs,
                                             const std::optional<Penalty>& common);

// Appends the clipping and returns the parameters with the clipped gradients. Throws UsageError
// for an unknown kind.
std::vector<ParamGrad> append_gradient_clip(const std::vector<ParamGrad>& pairs,
                                            const Penalty& clip);

}  // namespace fleet::fluid
