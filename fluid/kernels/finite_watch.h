// Who is told when what a program trains with is no longer finite.
#pragma once

#include <cstdint>
#include <string>

namespace fleet::fluid {

struct Nonfinite {
  // kGradients: with dynamic loss scaling, whose factor is as small as it gets.
  enum class What : uint8_t { kLoss, kParameter, kGradients };

  What what = What::kLoss;
  std::string variable;
  double value = 0;   // NaN, or an infinity
  uint64_t step = 0;  // of the program, from 0 on
};

// Any thread, and more than one at a time.
class FiniteWatch {
 public:
  virtual ~FiniteWatch() = default;
  // The loss of a step (of one of its logical shards), or a parameter that an update op has just
  // written. Of what is on a device it is told at the end of the step where something is fetched at
  // once, else at the end of the next step or in Executor::look_at_steps. With dynamic loss scaling
  // (fluid/mixed_precision) losses are not told, since steps with gradients that are not finite are
  // skipped, but such gradients when the factor is 1. What it throws ends the step.
  virtual void on_nonfinite(const Nonfinite& found) = 0;
};

}  // namespace fleet::fluid
