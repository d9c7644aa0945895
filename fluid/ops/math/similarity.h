// Norms and angles.
//
//   norm          X -> Norm (dimension `axis` being 1): sqrt(sum x^2 + epsilon); Out: X / Norm
//   norm_grad     X, Norm, Out@GRAD -> X@GRAD
//   cos_sim       X [n, ...], Y [n, ...] or [1, ...] -> Out, XNorm [n, 1], YNorm ([n, 1] or [1, 1])
//   cos_sim_grad  X, Y, Out, XNorm, YNorm, Out@GRAD -> X@GRAD, Y@GRAD (each optional)
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct NormAttrs {
  int32_t axis = -1;
  float epsilon = 1e-10f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(epsilon));
  }
};

void add_similarity_ops(OpTable& table);

}  // namespace fleet::fluid
