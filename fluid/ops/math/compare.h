// Ops that give or take truth values.
//
//   less_than, less_equal, greater_than, greater_equal, equal, not_equal
//                              X, Y -> Out (bool), broadcast as elementwise_* (elementwise.h)
//   logical_and, logical_or, logical_xor  X, Y -> Out: all bool, broadcast alike
//   logical_not                X -> Out: bool
//   where        Condition (bool), X, Y -> Out: X where true, else Y; equal shapes
//   where_grad   Condition, X, Y, Out@GRAD -> X@GRAD, Y@GRAD (each optional)
//   where_index  Condition -> Out (int64): [number of true elements, rank], their positions
//   isfinite     X -> Out [1] (bool): all are finite
//   isinf, isnan X -> Out [1] (bool, declared with X's type, as Paddle does): any is
//                infinite, or not a number
// Only `where` has a gradient.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct CompareAttrs {
  int32_t axis = -1;
  bool force_cpu = false;  // small results stay on the host; without meaning here
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(force_cpu));
  }
};

void add_compare_ops(OpTable& table);

}  // namespace fleet::fluid
