// Dynamic loss scaling as programs have it (fluid/mixed_precision/loss_scaling.h makes them).
#pragma once

#include <optional>
#include <string>

#include "fluid/program/program.h"

namespace fleet::fluid {

struct DynamicLossScaling {
  std::string factor;                 // float32 [1], persistable
  std::string gradients;              // a number that is finite if all gradients are
  std::string finite;                 // bool [1]
  const Operator* shrinks = nullptr;  // runs when they are not, and makes the factor smaller
};

// Nothing for a block without it.
std::optional<DynamicLossScaling> find_dynamic_loss_scaling(const Block& block);

}  // namespace fleet::fluid
