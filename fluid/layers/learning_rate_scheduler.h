// Learning rates that change with the step. Each returns a variable [1] to give to an optimizer;
// its ops have the role lrsched. The step counter "@LR_DECAY_COUNTER@" is one per program: it is 0
// in the first step and rises by one each step. Noam's steps count from 1, and so does whatever
// shares the counter with it, a warm-up around it included.
#pragma once

#include <string>
#include <vector>

#include "fluid/layers/numbers.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

// A persistable variable [1], int64, of the main program: `begin` in its first step, and `step`
// more in each that follows. One of that name that is there already is returned as it is.
Variable autoincreased_step_counter(const std::string& counter_name, int64_t begin = 1,
                                    int64_t step = 1);

// How a step is divided by a number of steps before it is rounded to whole periods.
enum class DecayForm : uint8_t {
  // A multiple of the number counts as one: the factor 1/n is rounded to the side that makes the
  // float32 product right.
  kExact,
  // With the float32 nearest to 1/n, as Paddle does: for some n a period then begins a step
  // late, or a polynomial cycle a step early.
  kPaddle,
};

// learning_rate * decay_rate ^ (step / decay_steps), the quotient rounded down if `staircase`.
Variable exponential_decay(double learning_rate, double decay_steps, double decay_rate,
                           bool staircase = false, DecayForm form = DecayForm::kExact);
// learning_rate * e ^ (-decay_rate * step / decay_steps).
Variable natural_exp_decay(double learning_rate, double decay_steps, double decay_rate,
                           bool staircase = false, DecayForm form = DecayForm::kExact);
// learning_rate / (1 + decay_rate * step / decay_steps).
Variable inverse_time_decay(double learning_rate, double decay_steps, double decay_rate,
                            bool staircase = false, DecayForm form = DecayForm::kExact);
// From learning_rate to end_learning_rate within decay_steps, by (1 - step / decay_steps)^power;
// it stays there, or with `cycle` begins anew with twice, three times … decay_steps.
Variable polynomial_decay(double learning_rate, double decay_steps,
                          double end_learning_rate = 0.0001, double power = 1.0, bool cycle = false,
                          DecayForm form = DecayForm::kExact);
// values[i] before step boundaries[i], the last value from the last boundary on. Throws UsageError
// unless there is one value more than boundaries.
Variable piecewise_decay(const std::vector<double>& boundaries, const std::vector<double>& values);
// learning_rate * 0.5 * (1 + cos(pi * epoch / epochs)), epoch = floor(step / step_each_epoch).
Variable cosine_decay(double learning_rate, double step_each_epoch, double epochs,
                      DecayForm form = DecayForm::kExact);
// learning_rate * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), steps from 1.
Variable noam_decay(double d_model, double warmup_steps, double learning_rate = 1.0);
// From start_lr towards end_lr, linearly, while step < warmup_steps; then learning_rate, a number
// or another schedule.
Variable linear_lr_warmup(const Real& learning_rate, double warmup_steps, double start_lr,
                          double end_lr);

}  // namespace fleet::fluid::layers
