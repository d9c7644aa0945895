// Ops that judge predictions.
//
//   top_k       X, K? [1] -> Out, Indices (int64): the k largest of each row, in falling order
//   top_k_grad  X, Indices, Out@GRAD -> X@GRAD
//   accuracy    Out, Indices (from top_k), Label [n, 1] -> Accuracy [1] (float32), Correct [1],
//               Total [1] (int32); no gradient
//   auc         Predict [n, w] (the last column in [0, 1]), Label [n, 1], StatPos, StatNeg (int64)
//               -> AUC [1] (float64), StatPosOut, StatNegOut (the variables of StatPos and
//               StatNeg); no gradient. The states count examples by prediction, in num_thresholds +
//               1 buckets; with slide_steps, those of each of the last slide_steps batches, then
//               their sum, then a count of batches: (slide_steps + 1) * buckets + 1 numbers
//               (one too many without slide_steps is ignored).
//   precision_recall  MaxProbs [n, 1], Indices, Labels [n, 1] (int32), Weights? [n, 1],
//               StatesInfo? [classes, 4] -> BatchMetrics [6], AccumMetrics [6] (float64),
//               AccumStatesInfo [classes, 4]; no gradient. Metrics are precision, recall and F1,
//               averaged over classes, then of all examples together; states are true and false
//               positives, true and false negatives.
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

struct AucAttrs {
  std::string curve = "ROC";  // or "PR"
  int32_t num_thresholds = 4095;
  int32_t slide_steps = 1;
  bool paddle_form = false;  // `curve` is ignored: always ROC
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(curve), CEREAL_NVP(num_thresholds), CEREAL_NVP(slide_steps),
       CEREAL_NVP(paddle_form));
  }
};

struct PrecisionRecallAttrs {
  int32_t class_number = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(class_number));
  }
};

void add_metric_ops(OpTable& table);

}  // namespace fleet::fluid
