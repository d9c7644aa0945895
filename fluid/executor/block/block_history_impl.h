// What a block op leaves for its gradient: the workspaces of its iterations, held by the op's
// variable of step scopes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fluid/executor/workspace_impl.h"

namespace fleet::fluid {

struct BlockHistory {
  std::vector<std::unique_ptr<Workspace>> iterations;
  size_t count = 0;  // of the last run
  // Variables of enclosing blocks that the block writes, and the values of those that are dense
  // before each iteration and after the last.
  std::vector<std::string> rewritten;
  std::vector<std::vector<Tensor>> before;
};

// The iteration's own numbers for kernels that draw at random.
inline Workspace::Step step_of_iteration(const Workspace::Step& step, size_t iteration) {
  Workspace::Step own = step;
  own.number |= static_cast<uint64_t>(iteration) << 32;
  return own;
}

// The tensor in a value; null when it holds none, or one without memory.
inline Tensor* tensor_in(Value* value) {
  auto* tensor = value == nullptr ? nullptr : std::get_if<Tensor>(value);
  return tensor != nullptr && tensor->initialized() ? tensor : nullptr;
}

// Throws ProgramError that names op and variable unless the value is a tensor.
Tensor& need_tensor(Value* value, const Operator& op, const std::string& name);

}  // namespace fleet::fluid
