// Weight decay: ops between the backward part and the updates.
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

// Throws UsageError for a regularizer of another kind than the two.
void check_regularizer(const Penalty& penalty, const Variable& param);

// Appends the decay of each parameter: its own regularizer, or else `common`. The sum is written
// back to the gradient, or, where that is of selected rows, to a dense variable
// "<gradient>@NEWGRAD@" that takes its place in what is returned. Throws UsageError for an unknown
// kind.
std::vector<ParamGrad> append_regularization(const std::vector<ParamGrad>& pairs,
                                             const std::optional<Penalty>& common);

}  // namespace fleet::fluid
