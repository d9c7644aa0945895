// Gradients of ops that run blocks: a block of gradient ops inside the forward one, and the op that
// runs it.
#pragma once

#include "fluid/backward/grad_ops.h"

namespace fleet::fluid::internal {

// The gradient op of an op whose row says how its block is differentiated
// (OpSchema::block_gradient), and the gradient's block in the same program. `no_grad` holds
// variables, `produced` the gradients that come in. Empty when nobody wants what it would make.
std::vector<Operator> make_block_gradient(Block& block, const Operator& op, const NameSet& no_grad,
                                          const NameSet& produced, const OpTable& table);

}  // namespace fleet::fluid::internal
