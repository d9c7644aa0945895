// Attributes that tensors give while running: shapes, axes, sections.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fluid/kernels/kernel.h"

namespace fleet::fluid::cpu {

// An attribute, and the optional slots that give it instead: one tensor a number, or else one
// tensor with all its numbers, of int32 or int64. A slot that the op does not have is empty.
struct TensorAttribute {
  std::string name;
  std::string whole;
  std::string list = {};
  bool scalar = false;  // one number, not a list
};

using PrepareKernel = std::function<std::unique_ptr<Prepared>(PrepareContext&)>;

// `prepare` for an op that may have such tensors: it sees the op without those slots, with the
// attributes that they hold, and is asked again when these change.
PrepareKernel with_tensor_attributes(PrepareKernel prepare,
                                     std::vector<TensorAttribute> attributes);

}  // namespace fleet::fluid::cpu
