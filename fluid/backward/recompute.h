// Backward ops that compute parts of the forward pass again instead of keeping them.
#pragma once

#include "fluid/backward/grad_ops.h"

namespace fleet::fluid::internal {

inline constexpr std::string_view kRecomputed = ".subprog_";

// "x" for "x.subprog_0".
inline std::string_view strip_recomputed(std::string_view name) {
  return name.substr(0, name.find(kRecomputed));
}

// As make_grad_ops, with the ops that compute again, in front of the gradients of each segment,
// what that segment does not keep. Throws ProgramError for a checkpoint that no op of the path
// makes.
std::vector<Operator> make_recomputing_grad_ops(const Block& block, const std::vector<size_t>& path,
                                                const NameSet& no_grad,
                                                const std::vector<std::string>& checkpoints,
                                                const OpTable& table, NameSet produced);

}  // namespace fleet::fluid::internal
