// Elementwise functions of one tensor: relu, sigmoid, tanh, sqrt, square, abs, exp, log, floor,
// ceil, round, reciprocal, sin, cos, sign.
//
//   <type>       X -> Out (same shape)
//   <type>_grad  Out@GRAD with Out (relu, sigmoid, tanh, sqrt, exp, reciprocal), with X (square,
//                abs, log, sin, cos) or alone (floor, ceil, round: zero) -> X@GRAD
// The gradient of relu and abs at 0 is 0. sign has no gradient.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct ActivationAttrs {
  // Carried over from the layer that asked for the activation; no kernel looks at it.
  bool use_cudnn = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(use_cudnn));
  }
};

void add_activation_ops(OpTable& table);

}  // namespace fleet::fluid
