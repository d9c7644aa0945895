// Softmax and the losses of classification. Labels are indices of int64 shape [..., 1], or, with
// soft_label, distributions of X's shape. A label equal to ignore_index costs nothing.
//
//   softmax                     X -> Out
//   softmax_grad                Out, Out@GRAD -> X@GRAD
//   cross_entropy               X (probabilities), Label -> Y [..., 1]
//   cross_entropy_grad          X, Label, Y@GRAD -> X@GRAD
//   cross_entropy2              X, Label (indices) -> Y [..., 1], MatchX [..., 1] (the label's
//                               probability), XShape (carries X's shape, no memory)
//   cross_entropy_grad2         Label, MatchX, XShape, Y@GRAD -> X@GRAD
//   softmax_with_cross_entropy  Logits, Label -> Softmax, Loss [..., 1]
//   softmax_with_cross_entropy_grad  Label, Softmax, Loss@GRAD -> Logits@GRAD
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct SoftmaxAttrs {
  int32_t axis = -1;
  std::string data_format = "AnyLayout";
  bool is_test = false;
  bool use_cudnn = false;  // no kernel looks at it
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(data_format), CEREAL_NVP(is_test), CEREAL_NVP(use_cudnn));
  }
};

struct CrossEntropyAttrs {
  bool soft_label = false;
  int32_t ignore_index = -100;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(soft_label), CEREAL_NVP(ignore_index));
  }
};

struct CrossEntropy2Attrs {
  int32_t ignore_index = -100;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(ignore_index));
  }
};

struct SoftmaxWithCrossEntropyAttrs {
  bool soft_label = false;
  bool numeric_stable_mode = true;
  int32_t ignore_index = -100;
  int32_t axis = -1;
  bool paddle_form = false;  // ignored rows, whose loss is 0, have an ordinary gradient
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(soft_label), CEREAL_NVP(numeric_stable_mode), CEREAL_NVP(ignore_index),
       CEREAL_NVP(axis), CEREAL_NVP(paddle_form));
  }
};

void add_loss_ops(OpTable& table);

}  // namespace fleet::fluid
