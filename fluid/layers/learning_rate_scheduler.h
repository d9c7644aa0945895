// Learning rates that change with the step. Each returns a variable [1] to give to an optimizer;
// its ops have the role lrsched. The step counter "@LR_DECAY_COUNTER@" is one per program: it is 0
// in the first step (1 with noam_decay) and rises by one each step.
#pragma once

#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

// learning_rate * decay_rate ^ (step / decay_steps), the quotient rounded down if `staircase`.
Variable exponential_decay(double learning_rate, double decay_steps, double decay_rate,
                           bool staircase = false);
// learning_rate * e ^ (-decay_rate * step / decay_steps).
Variable natural_exp_decay(double learning_rate, double decay_steps, double decay_rate,
                           bool staircase = false);
// learning_rate / (1 + decay_rate * step / decay_steps).
Variable inverse_time_decay(double learning_rate, double decay_steps, double decay_rate,
                            bool staircase = false);
// From learning_rate to end_learning_rate within decay_steps, by (1 - step / decay_steps)^power.
Variable polynomial_decay(double learning_rate, double decay_steps,
                          double end_learning_rate = 0.0001, double power = 1.0);
// learning_rate * 0.5 * (1 + cos(pi * epoch / epochs)), epoch = floor(step / step_each_epoch).
Variable cosine_decay(double learning_rate, double step_each_epoch, double epochs);
// learning_rate * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), steps from 1.
Variable noam_decay(double d_model, double warmup_steps, double learning_rate = 1.0);

}  // namespace fleet::fluid::layers
