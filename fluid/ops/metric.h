// Ops that judge predictions.
//
//   top_k       X, K? [1] -> Out, Indices (int64): the k largest of each row, in falling order
//   top_k_grad  X, Indices, Out@GRAD -> X@GRAD
//   accuracy    Out, Indices (from top_k), Label [n, 1] -> Accuracy [1] (float32), Correct [1],
//               Total [1] (int32); no gradient
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct TopKAttrs {
  int32_t k = 1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(k));
  }
};

void add_metric_ops(OpTable& table);

}  // namespace fleet::fluid
