// Mixed precision (Micikevicius et al. 2018): products and what lies between them compute in 16-bit
// floats; parameters, what sums over many elements, gradients of parameters and updates stay
// float32.
//
//   optimizer::Momentum momentum({.learning_rate = 0.1});
//   auto mixed = mixed_precision::decorate(momentum);
//   mixed.minimize(loss);   // or fleet::distributed_optimizer(mixed).minimize(loss)
//
// The programs are those of Paddle Fluid 1.8.5 (fluid.contrib.mixed_precision), but for the places
// that docs/mixed_precision.md names.
#pragma once

#include <optional>
#include <vector>

#include "fluid/mixed_precision/loss_scaling.h"
#include "fluid/mixed_precision/options.h"
#include "fluid/optimizer/optimizer.h"

namespace fleet::fluid::mixed_precision {

// Trains as `inner` does, in mixed precision: backward rewrites the forward part, multiplies the
// loss, and gives the gradients, divided again; apply_gradients skips steps whose gradients are not
// finite (their gradients are zero then; the states of momentum and the like move as with zeros).
class OptimizerWithMixedPrecision final : public optimizer::Optimizer {
 public:
  // `inner` must outlive it. Throws UsageError for options that make no sense, and for an optimizer
  // that compresses gradients (DGCMomentum) or is decorated already.
  explicit OptimizerWithMixedPrecision(optimizer::Optimizer& inner, Options options = {});

  // Throws ProgramError for a program that has a backward part, and for a loss of another type than
  // float32.
  std::vector<ParamGrad> backward(const Variable& loss,
                                  const optimizer::MinimizeOptions& options = {}) override;
  std::vector<const Operator*> apply_gradients(std::vector<ParamGrad> pairs,
                                               Program* startup_program = nullptr) override;

  // Of the last program: the factor (float32 [1]), and the loss times it; empty before backward and
  // with bfloat16.
  Variable loss_scaling() const { return scaling_ ? scaling_->factor() : Variable(); }
  Variable scaled_loss() const { return scaled_loss_; }

 private:
  optimizer::Optimizer& inner_;
  Options options_;
  std::optional<LossScaling> scaling_;
  Variable scaled_loss_;
};

OptimizerWithMixedPrecision decorate(optimizer::Optimizer& inner, const Options& options = {});

}  // namespace fleet::fluid::mixed_precision
