// Optimizers with what else a rule may have, drawn.
#pragma once

#include "tests/fleet/update_rules.h"

namespace fleet::testing {

// SGD, Momentum, LarsMomentum, Adagrad, DecayedAdagrad, Adadelta, Adam, Adamax, RMSProp, Ftrl,
// Lamb, and Dpsgd, which has no kernel for rows.
inline constexpr int kOptimizers = 12;
inline constexpr int kForRows = kOptimizers - 1;

struct RuleChoice {
  int optimizer = 0;      // of kOptimizers
  bool schedules = true;  // a schedule computes in float32
};

// Its options, schedule, clip, decay, and whether Lookahead is around it. The name says what came.
UpdateRule draw_rule(Draw& draw, const RuleChoice& choice);

}  // namespace fleet::testing
