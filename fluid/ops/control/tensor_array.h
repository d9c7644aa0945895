// Arrays of tensors, for loops. I is one int64.
//
//   write_to_array          X, I -> Out (array): element I becomes a copy of X
//   read_from_array         X (array), I -> Out: a copy of element I
//   lod_array_length        X (array) -> Out [1] (int64)
//   tensor_array_to_tensor  X (array) -> Out, OutIndex: the elements joined along `axis`, or
//                           stacked along a new one with use_stack; OutIndex: their sizes there
// Gradients: <type>_grad with the forward inputs and the outputs' gradients.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct TensorArrayToTensorAttrs {
  int32_t axis = 0;
  bool use_stack = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(use_stack));
  }
};

void add_tensor_array_ops(OpTable& table);

}  // namespace fleet::fluid
