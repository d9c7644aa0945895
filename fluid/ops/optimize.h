// Update ops. Their outputs are their own inputs' variables.
//
//   sgd       Param, Grad, LearningRate [1] -> ParamOut
//   momentum  Param, Grad, Velocity, LearningRate -> ParamOut, VelocityOut
//   adam      Param, Grad, LearningRate, Moment1, Moment2, Beta1Pow [1], Beta2Pow [1],
//             Beta1Tensor?, Beta2Tensor? -> ParamOut, Moment1Out, Moment2Out, Beta1PowOut,
//             Beta2PowOut
// Formulas (p parameter, g gradient, lr rate):
//   sgd       p -= lr g
//   momentum  v = mu v + g; p -= lr v, or with Nesterov p -= lr (g + mu v)
//   adam      m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
//             p -= lr sqrt(1-B2)/(1-B1) m / (sqrt(v) + epsilon), B1 and B2 as read; then B1 *= b1,
//             B2 *= b2
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct MomentumAttrs {
  float mu = 0.0f;
  bool use_nesterov = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(mu), CEREAL_NVP(use_nesterov));
  }
};

struct AdamAttrs {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  bool lazy_mode = false;
  int64_t min_row_size_to_use_multithread = 1000;  // without meaning here
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(beta1), CEREAL_NVP(beta2), CEREAL_NVP(epsilon), CEREAL_NVP(lazy_mode),
       CEREAL_NVP(min_row_size_to_use_multithread));
  }
};

void add_optimize_ops(OpTable& table);

}  // namespace fleet::fluid
