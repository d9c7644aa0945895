// When the workers of a LocalSGD job average their parameters: a policy without any clock or
// network, so that real jobs and simulated ones follow the same rule.
//
// H local steps, then w <- mean over the workers of w (Stich, ICLR 2019). Post-local SGD (Lin et
// al., ICLR 2020): H = 1 up to a step, the interval from there on. AdaComm (Wang and Joshi, MLSys
// 2019): the interval follows the loss,
//   tau_l = ceil(tau_0 sqrt((eta_0 / eta_l) F_l / F_0)),
// without the factor of learning rates when it is not asked for; where that does not shrink the
// interval, it is multiplied by `shrink` (the paper's gamma = 1/2; 1 leaves this out, so that the
// interval grows when the learning rate falls).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fleet::strategies {

enum class LocalSgdRule {
  kConstant,
  kAdaComm,  // as in the paper
  // As in Paddle Fluid: clip(ceil(sqrt(eta_0 F_l / (eta_l F_0) k_0)), 1, 16) with the last batch's
  // loss and k_0 inside of the root, decided anew at every average.
  kAdaCommPaddle,
};

struct LocalSgdOptions {
  // Local steps between two averages; tau_0 or k_0 of an adaptive rule.
  int interval = 1;
  // Up to this step the workers average after every step.
  int64_t start_step = 0;
  LocalSgdRule rule = LocalSgdRule::kConstant;
  // kAdaComm only. Local steps between two decisions, rounded up to whole intervals.
  int adapt_every = 100;
  bool with_learning_rate = true;
  double shrink = 0.5;
  // Bounds of an adaptive interval.
  int min_interval = 1;
  int max_interval = 1000;

  // Paddle's rule with its bounds.
  static LocalSgdOptions paddle(int first_interval = 1) {
    LocalSgdOptions options;
    options.interval = first_interval;
    options.rule = LocalSgdRule::kAdaCommPaddle;
    options.max_interval = 16;
    return options;
  }
};

// Throws UsageError that names the field.
void validate(const LocalSgdOptions& options);
std::string to_string(LocalSgdRule rule);

// One worker's copy of the schedule; the copies agree, since they are told the same.
class LocalSgdSchedule {
 public:
  // Throws as validate() does.
  explicit LocalSgdSchedule(LocalSgdOptions options);

  const LocalSgdOptions& options() const { return options_; }
  // The rule looks at the loss, so the workers average that too.
  bool adapts() const { return options_.rule != LocalSgdRule::kConstant; }

  // Counts one local step with its loss (anything when the rule is constant); true when the
  // workers average after it.
  bool step(double loss);
  // What this worker contributes to F_l: its mean loss since the last decision, or the last
  // batch's for Paddle's rule.
  double local_loss() const;
  // An average is done. `loss` is the mean of local_loss() over the workers.
  void averaged(double loss, double learning_rate);

  // Local steps from one average to the next, now.
  int interval() const;
  int64_t steps() const { return steps_; }
  int64_t averages() const { return averages_; }

  // All that it has counted, for a schedule with the same options that goes on from there. Numbers
  // of another kind are left alone.
  std::vector<double> counts() const;
  void set_counts(std::span<const double> counts);

 private:
  void adapt(double loss, double learning_rate);

  LocalSgdOptions options_;
  int interval_;
  int64_t steps_ = 0;
  int64_t since_average_ = 0;
  int64_t averages_ = 0;
  // Since the last decision.
  int64_t observed_ = 0;
  double loss_sum_ = 0;
  double last_loss_ = 0;
  // Of the first decision.
  bool begun_ = false;
  double first_loss_ = 0;
  double first_learning_rate_ = 0;
};

}  // namespace fleet::strategies
