// Losses that compare values, element by element or row by row.
//
//   sigmoid_cross_entropy_with_logits  X, Label -> Out (X's shape): max(x, 0) - x z + log(1 +
//   e^-|x|);
//       0 where z is ignore_index; divided by the number of other elements when `normalize` is set
//   sigmoid_cross_entropy_with_logits_grad  X, Label, Out@GRAD -> X@GRAD
//   log_loss        Predicted, Labels -> Loss: -z log(p + e) - (1 - z) log(1 - p + e)
//   log_loss_grad   Predicted, Labels, Loss@GRAD -> Predicted@GRAD
//   huber_loss      X, Y -> Residual (Y - X), Out: r^2 / 2 up to delta, then delta (|r| - delta /
//   2) huber_loss_grad Residual, Out@GRAD -> X@GRAD, Y@GRAD (each optional) smooth_l1_loss  X, Y,
//   InsideWeight?, OutsideWeight? -> Diff ((X - Y) InsideWeight), Out [n, 1]:
//       per row the sum of OutsideWeight times sigma^2 d^2 / 2 below 1 / sigma^2, |d| - 1 / (2
//       sigma^2) beyond
//   smooth_l1_loss_grad  Diff, InsideWeight?, OutsideWeight?, Out@GRAD -> X@GRAD, Y@GRAD (optional)
//   hinge_loss      Logits, Labels (0 or 1) -> Loss: max(0, 1 - (2 z - 1) x)
//   hinge_loss_grad Logits, Labels, Loss@GRAD -> Logits@GRAD
//   bpr_loss        X [.., n], Label (int64 [.., 1]) -> Y [.., 1]: the mean over the other classes
//   j
//       of log(1 + e^(x_j - x_label))
//   bpr_loss_grad   X, Label, Y@GRAD -> X@GRAD
//   rank_loss       Label, Left, Right -> Out: log(1 + e^(l - r)) - z (l - r)
//   rank_loss_grad  Label, Left, Right, Out@GRAD -> Left@GRAD, Right@GRAD (each optional)
//   margin_rank_loss       X1, X2, Label -> Out: max(0, margin - z (x1 - x2)); Activated: Out > 0
//   margin_rank_loss_grad  Label, Activated, Out@GRAD -> X1@GRAD, X2@GRAD (each optional)
//   kldiv_loss      X (log-probabilities), Target -> Loss: t (log t - x), 0 where t <= 0;
//   `reduction`
//       none: X's shape; sum, mean, batchmean (by rows): [1]
//   kldiv_loss_grad X, Target, Loss@GRAD -> X@GRAD
//   label_smooth       X, PriorDist? -> Out: (1 - epsilon) x + epsilon / classes (or PriorDist)
//   label_smooth_grad  Out@GRAD -> X@GRAD
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct SigmoidCrossEntropyAttrs {
  bool normalize = false;
  int32_t ignore_index = -100;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(normalize), CEREAL_NVP(ignore_index));
  }
};

struct LogLossAttrs {
  float epsilon = 1e-4f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epsilon));
  }
};

struct HuberLossAttrs {
  float delta = 1.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(delta));
  }
};

struct SmoothL1LossAttrs {
  float sigma = 1.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(sigma));
  }
};

struct MarginRankLossAttrs {
  float margin = 0.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(margin));
  }
};

struct KldivLossAttrs {
  std::string reduction = "mean";
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(reduction));
  }
};

struct LabelSmoothAttrs {
  float epsilon = 0.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epsilon));
  }
};

void add_regression_loss_ops(OpTable& table);

}  // namespace fleet::fluid
