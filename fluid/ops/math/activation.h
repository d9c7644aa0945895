// Elementwise functions of one tensor.
//
//   <type>       X -> Out (same shape)
//   <type>_grad  Out@GRAD, with Out, with X, or alone -> X@GRAD
// Which of them the backward op takes:
//   Out    relu, relu6, sigmoid, tanh, sqrt, rsqrt, exp, reciprocal, hard_sigmoid, soft_relu
//   X      square, abs, log, log1p, sin, cos, asin, acos, atan, sinh, cosh, erf, leaky_relu, elu,
//          gelu, swish, hard_swish, softplus, softsign, stanh, logsigmoid, pow, brelu, tanh_shrink,
//          softshrink, hard_shrink, thresholded_relu
//   none   floor, ceil, round (zero)
// At a kink the gradient is that of the flat side: 0 for relu, abs, relu6 and hard_sigmoid, alpha
// for leaky_relu. The gradient of sign is a `scale` by 0.
//
//   pow    X, FactorTensor? [1] -> Out: X to the power `factor`, which a FactorTensor replaces
//   prelu       X, Alpha -> Out: X where positive, else Alpha * X
//   prelu_grad  X, Alpha, Out@GRAD -> X@GRAD, Alpha@GRAD (each optional)
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

// min(max(x, 0), threshold); the same for hard_shrink (0 where |x| <= threshold), for
// thresholded_relu (0 where x <= threshold) and soft_relu (log(1 + e^x), x cut to +-threshold).
struct ThresholdAttrs {
  float threshold = 6.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(threshold));
  }
};
struct HardShrinkAttrs {
  float threshold = 0.5f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(threshold));
  }
};
struct ThresholdedReluAttrs {
  float threshold = 1.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(threshold));
  }
};
struct SoftReluAttrs {
  float threshold = 40.0f;
  bool paddle_form = false;  // the gradient goes on below -threshold, and ends where Out reaches it
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(threshold), CEREAL_NVP(paddle_form));
  }
};

// x towards 0 by lambda, 0 between.
struct SoftShrinkAttrs {
  float lambda = 0.5f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(lambda));
  }
};

// x, or alpha * x below 0.
struct LeakyReluAttrs {
  float alpha = 0.02f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(alpha));
  }
};

// x, or alpha * (e^x - 1) below 0.
struct EluAttrs {
  float alpha = 1.0f;
  bool paddle_form = false;  // the gradient at large x, where e^x overflows, is not a number
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(alpha), CEREAL_NVP(paddle_form));
  }
};

// x * P(N(0, 1) <= x), by erf, or by the tanh formula.
struct GeluAttrs {
  bool approximate = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(approximate));
  }
};

// slope * x + offset, cut to [0, 1].
struct HardSigmoidAttrs {
  float slope = 0.2f;
  float offset = 0.5f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(slope), CEREAL_NVP(offset));
  }
};

// x * sigmoid(beta * x).
struct SwishAttrs {
  float beta = 1.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(beta));
  }
};

// x * min(max(x + offset, 0), threshold) / scale.
struct HardSwishAttrs {
  float threshold = 6.0f;
  float scale = 6.0f;
  float offset = 3.0f;
  bool paddle_form = false;  // the gradient above the threshold is 1, whatever the scale
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(threshold), CEREAL_NVP(scale), CEREAL_NVP(offset), CEREAL_NVP(paddle_form));
  }
};

// scale_b * tanh(scale_a * x).
struct StanhAttrs {
  float scale_a = 0.67f;
  float scale_b = 1.7159f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(scale_a), CEREAL_NVP(scale_b));
  }
};

// x cut to [t_min, t_max].
struct BreluAttrs {
  float t_min = 0.0f;
  float t_max = 24.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(t_min), CEREAL_NVP(t_max));
  }
};

struct PowAttrs {
  float factor = 1.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(factor));
  }
};

// Alpha has one element (all), one for each channel, X's dimension 1 (channel), or one for each
// element of a row of X (element).
struct PreluAttrs {
  std::string mode = "all";
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(mode));
  }
};

void add_activation_ops(OpTable& table);

}  // namespace fleet::fluid
