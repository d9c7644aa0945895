// Sums, means and other reductions.
//
//   mean             X -> Out [1]: over all elements
//   mean_grad        X, Out@GRAD -> X@GRAD
//   sum              X (several, same shape) -> Out; its gradient is a `scale` by 1 per input
//   reduce_{sum,mean,max,min,prod}  X -> Out: over the dimensions `dim`, or all of them
//   reduce_{sum,mean}_grad          X, Out@GRAD -> X@GRAD
//   reduce_{max,min,prod}_grad      X, Out, Out@GRAD -> X@GRAD
//   reduce_{all,any}                X (bool) -> Out (bool); no gradient
// Every element that ties for the largest or smallest gets the whole gradient. The gradient of a
// product is the product of the other elements, also where one is 0.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct ReduceAttrs {
  std::vector<int32_t> dim = {0};  // negative counts from the end
  bool keep_dim = false;
  bool reduce_all = false;
  // Names of element types; empty: as X.
  std::string in_dtype;
  std::string out_dtype;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(dim), CEREAL_NVP(keep_dim), CEREAL_NVP(reduce_all), CEREAL_NVP(in_dtype),
       CEREAL_NVP(out_dtype));
  }
};

void add_reduce_ops(OpTable& table);

}  // namespace fleet::fluid
