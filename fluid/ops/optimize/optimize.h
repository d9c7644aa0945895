// Update ops. Their outputs are their own inputs' variables, slot "X" going to "XOut" except where
// another name is given. Param, Grad and the states have one shape; LearningRate and the powers
// have one element.
//
//   sgd              Param, Grad, LearningRate
//   momentum         Param, Grad, Velocity, LearningRate
//   lars_momentum    Param, Grad, Velocity, LearningRate; ParamSquaredRowSums?, GradSquaredRowSums?
//                    [rows], float64: of the whole that a slice is a part of
//   adagrad          Param, Grad, Moment, LearningRate
//   decayed_adagrad  Param, Grad, Moment, LearningRate
//   adadelta         Param, Grad, AvgSquaredGrad, AvgSquaredUpdate
//   adam             Param, Grad, LearningRate, Moment1, Moment2, Beta1Pow, Beta2Pow; Beta1Tensor?,
//                    Beta2Tensor? [1], float32, instead of the attributes
//   adamax           Param, Grad, LearningRate, Moment, InfNorm, Beta1Pow (which a `scale` behind
//                    all updates advances)
//   rmsprop          Param, Grad, LearningRate, MeanSquare, MeanGrad, Moment
//   ftrl             Param, Grad, LearningRate, SquaredAccumulator -> SquaredAccumOut,
//                    LinearAccumulator -> LinearAccumOut
//   lamb             Param, Grad, LearningRate, Moment1, Moment2, Beta1Pow, Beta2Pow; the last two
//                    have no output in Paddle's form
//   dpsgd            Param, Grad, LearningRate
//
// Formulas (p parameter, g gradient, lr rate, all element by element; |x| of a whole tensor is its
// Euclidean norm):
//   sgd       p -= lr g
//   momentum  v = mu v + g; p -= lr v, or with Nesterov p -= lr (g + mu v)
//   lars_momentum    v = mu v + r (g + d p), p -= v with r = lr c |p| / (|g| + d |p|), or lr when a
//             norm is 0 (You, Gitman and Ginsburg 2017)
//   adagrad   m += g^2; p -= lr g / (sqrt(m) + e) (Duchi, Hazan and Singer 2011)
//   decayed_adagrad  m = d m + (1-d) g^2; the same step
//   adadelta  G = r G + (1-r) g^2; u = sqrt((U+e)/(G+e)) g; p -= u; U = r U + (1-r) u^2 (Zeiler
//             2012, which knows no rate). Paddle's form: the step is taken with the new U.
//   adam      m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
//             p -= lr sqrt(1-B2)/(1-B1) m / (sqrt(v) + e), B1 and B2 as read; then B1 *= b1,
//             B2 *= b2 (Kingma and Ba 2015, section 2). Paddle's form, selected rows only: B1 and
//             B2 after the multiplication.
//   adamax    m = b1 m + (1-b1) g; n = max(|g|, b2 n + e); p -= lr/(1-B1) m/n
//   rmsprop   s = r s + (1-r) g^2; w = mu w + lr g / sqrt(s + e); centered: q = r q + (1-r) g and
//             sqrt(s - q^2 + e); p -= w
//   ftrl      n' = n + g^2; L += g - (n'^-k - n^-k)/lr p; p = (l1 sign(L) - L) / (n'^-k/lr + 2 l2)
//             where |L| > l1, else 0; k is lr_power (McMahan et al. 2013); 1e-10 is added to l1, l2
//   lamb      m, v as adam; u = m/(1-B1) / (sqrt(v/(1-B2)) + e) + d p; p -= lr |p|/|u| u, ratio 1
//             when a norm is 0; then B1 *= b1, B2 *= b2 (You et al. 2020, algorithm 2). Paddle's
//             form: u = m / (sqrt(v) + e) + d p, and the powers stay.
//   dpsgd     p -= lr (g min(1, clip/|g|) + noise/batch_size), noise normal with deviation sigma,
//             anew for every element and step (Abadi et al. 2016)
//
// A gradient of selected rows means the dense one with zeros elsewhere, rows that occur several
// times summed; adam's lazy_mode moves the rows named only.
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

struct LarsMomentumAttrs {
  float mu = 0.0f;
  float lars_coeff = 0.001f;
  float lars_weight_decay = 0.0005f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(mu), CEREAL_NVP(lars_coeff), CEREAL_NVP(lars_weight_decay));
  }
};

struct AdagradAttrs {
  float epsilon = 1e-6f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epsilon));
  }
};

struct DecayedAdagradAttrs {
  float decay = 0.95f;
  float epsilon = 1e-6f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(decay), CEREAL_NVP(epsilon));
  }
};

struct AdadeltaAttrs {
  float rho = 0.95f;
  float epsilon = 1e-6f;
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(rho), CEREAL_NVP(epsilon), CEREAL_NVP(paddle_form));
  }
};

struct AdamAttrs {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  bool lazy_mode = false;
  int64_t min_row_size_to_use_multithread = 1000;  // without meaning here
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(beta1), CEREAL_NVP(beta2), CEREAL_NVP(epsilon), CEREAL_NVP(lazy_mode),
       CEREAL_NVP(min_row_size_to_use_multithread), CEREAL_NVP(paddle_form));
  }
};

struct AdamaxAttrs {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(beta1), CEREAL_NVP(beta2), CEREAL_NVP(epsilon));
  }
};

struct RmspropAttrs {
  float epsilon = 1e-10f;
  float decay = 0.9f;
  float momentum = 0.0f;
  bool centered = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epsilon), CEREAL_NVP(decay), CEREAL_NVP(momentum), CEREAL_NVP(centered));
  }
};

struct FtrlAttrs {
  float l1 = 0.0f;
  float l2 = 0.0f;
  float lr_power = -0.5f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(l1), CEREAL_NVP(l2), CEREAL_NVP(lr_power));
  }
};

struct LambAttrs {
  float weight_decay = 0.01f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-6f;
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(weight_decay), CEREAL_NVP(beta1), CEREAL_NVP(beta2), CEREAL_NVP(epsilon),
       CEREAL_NVP(paddle_form));
  }
};

struct DpsgdAttrs {
  float clip = 10.0f;
  float batch_size = 16.0f;
  float sigma = 1.0f;
  int32_t seed = 0;  // 0: the program's
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(clip), CEREAL_NVP(batch_size), CEREAL_NVP(sigma), CEREAL_NVP(seed));
  }
};

void add_optimize_ops(OpTable& table);

}  // namespace fleet::fluid
