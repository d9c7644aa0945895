// Sequences: X holds rows of several sequences one after the other, its LoD says where each begins
// (its last level, unless an op says otherwise).
//
//   sequence_pool     X -> Out [sequences, ...], MaxIndex: one row per sequence, by pooltype SUM,
//                     AVERAGE, SQRT (sum / sqrt(length)), MAX (MaxIndex: whose row, int32), LAST,
//                     FIRST; pad_value for an empty sequence
//   sequence_softmax  X [rows, 1] -> Out: softmax over each sequence
//   sequence_expand   X, Y -> Out: sequence i of X (row i without LoD) as often as sequence i of
//                     level ref_level of Y's LoD has members
//   sequence_concat   X+ -> Out: sequence i of each input, joined
//   sequence_conv     X [rows, d], Filter [contextLength d, out], PaddingData? [p, d] -> Out: the
//                     rows around each row (from contextStart on; zeros, or rows of PaddingData,
//                     outside of the sequence), laid side by side and multiplied by Filter
//   sequence_pad      X, PadValue [1] or of a row's shape -> Out [sequences, length, ...], Length
//                     [sequences] (int64): length is padded_length, or the longest one's with -1
//   sequence_unpad    X [sequences, length, ...], Length -> Out: the rows within each length
//   sequence_reverse  X -> Y: each sequence backwards; gradient: the same
//   sequence_mask     X (lengths), MaxLenTensor? [1] -> Y [..., maxlen] of out_dtype: 1 before the
//                     length; maxlen -1: the largest length
// Gradient ops, "<type>_grad", take the forward inputs that are needed (sequence_softmax: Out;
// sequence_pool MAX: MaxIndex) and Out@GRAD.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct SequencePoolAttrs {
  std::string pooltype = "AVERAGE";
  float pad_value = 0.0f;
  bool is_test = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(pooltype), CEREAL_NVP(pad_value), CEREAL_NVP(is_test));
  }
};

struct SequenceSoftmaxAttrs {
  std::string data_format = "AnyLayout";  // without meaning
  bool use_cudnn = false;                 // no kernel looks at it
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(data_format), CEREAL_NVP(use_cudnn));
  }
};

struct SequenceExpandAttrs {
  int32_t ref_level = -1;  // -1: the last
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(ref_level));
  }
};

struct SequenceConvAttrs {
  int32_t context_length = 3;  // attribute contextLength, and so on
  int32_t context_start = 0;
  int32_t context_stride = 1;  // 1 is all there is
  bool padding_trainable = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(cereal::make_nvp("contextLength", context_length),
       cereal::make_nvp("contextStart", context_start),
       cereal::make_nvp("contextStride", context_stride),
       cereal::make_nvp("paddingTrainable", padding_trainable));
  }
};

struct SequencePadAttrs {
  int32_t padded_length = -1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(padded_length));
  }
};

struct SequenceMaskAttrs {
  int32_t maxlen = -1;
  DType out_dtype = DType::kInt64;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(maxlen), CEREAL_NVP(out_dtype));
  }
};

void add_sequence_ops(OpTable& table);

}  // namespace fleet::fluid
