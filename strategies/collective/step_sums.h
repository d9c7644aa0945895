// What a step of a program sums over the ranks, for a rank that gives nothing to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "fluid/ops/distributed/trainer_program.h"
#include "fluid/ops/optimize/dgc.h"
#include "strategies/collective/gradient_reducer.h"

namespace fleet::strategies {

class StepSums {
 public:
  StepSums() = default;
  explicit StepSums(const fluid::RankProgram& program);

  // True when the form of a gradient depends on the step, as the program counts it
  // (fluid::kDgcCounter).
  bool change() const { return change_; }

  struct OfStep {
    std::vector<ReductionShape> dense;  // in the order in which a step reduces them
    size_t rows = 0;                    // gradients of selected rows
  };
  OfStep in(int64_t step) const;

 private:
  struct Sum {
    std::optional<ReductionShape> dense;  // none: it is of selected rows
    std::optional<fluid::DgcAttrs> compression = std::nullopt;
  };
  std::vector<Sum> sums_;
  bool change_ = false;
};

}  // namespace fleet::strategies
