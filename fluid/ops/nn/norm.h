// Normalisation: y = (x - mean) / sqrt(variance + epsilon), times Scale, plus Bias.
//
//   batch_norm       X, Scale [c], Bias [c], Mean [c], Variance [c], MomentumTensor? -> Y, MeanOut,
//                    VarianceOut (Mean's and Variance's variables), SavedMean, SavedVariance [c],
//                    ReserveSpace?: over everything but channels. Training uses the batch's own
//                    mean and (biased) variance, saves them as mean and 1 / sqrt(variance +
//                    epsilon), and moves the running ones: momentum * old + (1 - momentum) * new.
//                    With is_test or use_global_stats the running ones are used. A batch with one
//                    value per channel is passed through.
//   batch_norm_grad  X, Scale, Bias, SavedMean, SavedVariance, Y@GRAD (and Mean, Variance with
//                    use_global_stats) -> X@GRAD, Scale@GRAD, Bias@GRAD (each optional)
//   layer_norm       X, Scale?, Bias? -> Y, Mean, Variance [rows]: over the dimensions from
//                    begin_norm_axis on; Scale and Bias have one element per column
//   layer_norm_grad  X, Scale?, Bias?, Mean, Variance, Y@GRAD -> X@GRAD, Scale@GRAD, Bias@GRAD
//   group_norm       X, Scale? [c], Bias? [c] -> Y, Mean, Variance [n, groups]: over the channels
//                    of a group and the image. Where groups do not divide the channels, each has
//                    ceil(c / groups) and the last what is left.
//   group_norm_grad  as layer_norm_grad. With paddle_form Y, Scale?, Bias?, Variance, Y@GRAD:
//                    the normalised x is (Y - Bias) / Scale, and lost where Scale is 0.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct BatchNormAttrs {
  float momentum = 0.9f;
  float epsilon = 1e-5f;  // at most 1e-3
  std::string data_layout = "NCHW";
  bool is_test = false;
  bool use_global_stats = false;
  bool trainable_statistics = false;  // is_test, but with the batch's own statistics
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(momentum), CEREAL_NVP(epsilon), CEREAL_NVP(data_layout), CEREAL_NVP(is_test),
       CEREAL_NVP(use_global_stats), CEREAL_NVP(trainable_statistics));
  }

  // Whether the running statistics are used instead of the batch's.
  bool global_stats() const { return use_global_stats || (is_test && !trainable_statistics); }
};

struct LayerNormAttrs {
  float epsilon = 1e-5f;
  int32_t begin_norm_axis = 1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epsilon), CEREAL_NVP(begin_norm_axis));
  }
};

struct GroupNormAttrs {
  float epsilon = 1e-5f;
  int32_t groups = 1;
  std::string data_layout = "NCHW";
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(epsilon), CEREAL_NVP(groups), CEREAL_NVP(data_layout), CEREAL_NVP(paddle_form));
  }
};

void add_norm_ops(OpTable& table);

// Of `channels` in `groups`: how many a group has, the last one perhaps fewer; whether every group
// has one; and how that is said.
int64_t group_channels(int64_t channels, int32_t groups);
bool groups_fit(int64_t channels, int32_t groups);
std::string fitting_groups(int32_t groups);

// Position of the channels among `rank` dimensions: 1 for NCHW, the last for NHWC (0 for rank 1).
// Throws ProgramError that names `where` for another layout.
int channel_axis(std::string_view data_layout, int rank, std::string_view where);

}  // namespace fleet::fluid
