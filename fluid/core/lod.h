// Sequences of a tensor as a user gives them.
#pragma once

#include <string>

#include "fluid/core/tensor.h"

namespace fleet::fluid {

// What is wrong with the tensor's sequence offsets, "level 1 begins with 2"; empty when nothing is:
// the offsets of every level ascend from 0 to the number of sequences of the next one, those of the
// last to the tensor's rows. A tensor without sequences has nothing wrong.
std::string fault_of_lod(const Tensor& tensor);

}  // namespace fleet::fluid
