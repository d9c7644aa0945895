// What an operator is there for; transpilers and executors act on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fleet::fluid {

// Flags; kLoss is combined with kForward or kBackward.
enum class OpRole : int32_t {
  kForward = 0,
  kBackward = 1,
  kOptimize = 2,
  kRpc = 4,
  kDist = 8,
  kLrSched = 16,
  kLoss = 256,
};

constexpr OpRole operator|(OpRole a, OpRole b) {
  return static_cast<OpRole>(static_cast<int32_t>(a) | static_cast<int32_t>(b));
}
// True when `role` contains the flag; for kForward, when it has no flag but kLoss.
constexpr bool has_role(OpRole role, OpRole flag) {
  const auto bits = static_cast<int32_t>(role);
  if (flag == OpRole::kForward) return (bits & ~static_cast<int32_t>(OpRole::kLoss)) == 0;
  return (bits & static_cast<int32_t>(flag)) != 0;
}

std::string to_string(OpRole role);           // "backward|loss"
OpRole parse_op_role(std::string_view text);  // throws UsageError

}  // namespace fleet::fluid
