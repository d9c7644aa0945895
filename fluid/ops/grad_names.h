// How gradients are called: "x@GRAD" is the gradient of variable x, and the slot "X@GRAD" of a
// backward op holds the gradients of slot X.
#pragma once

#include <string>
#include <string_view>

namespace fleet::fluid {

inline constexpr std::string_view kGradSuffix = "@GRAD";

inline std::string grad_name(std::string_view variable_or_slot) {
  return std::string(variable_or_slot) + std::string(kGradSuffix);
}

}  // namespace fleet::fluid
