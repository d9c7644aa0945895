// Affine and clipping ops of one tensor.
//
//   scale         X, ScaleTensor? [1] -> Out: scale * X + bias, or scale * (X + bias); a
//                 ScaleTensor replaces the attribute. Its gradient is a scale.
//   increment     X [1] -> Out (may be X): X + step; no gradient
//   clip          X, Min? [1], Max? [1] -> Out; clip_grad X, Out@GRAD -> X@GRAD
//   clip_by_norm  X, SquaredRowSums? -> Out: X * max_norm / max(|X|, max_norm); no gradient here.
//                 SquaredRowSums [rows], float64, are those of the whole that X is a part of
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct ScaleAttrs {
  // Double, so that the average over a number of shards is right to the bit in float64 as well.
  double scale = 1.0;
  double bias = 0.0;
  bool bias_after_scale = true;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(scale), CEREAL_NVP(bias), CEREAL_NVP(bias_after_scale));
  }
};

struct IncrementAttrs {
  float step = 1.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(step));
  }
};

struct ClipAttrs {
  float min = 0.0f;
  float max = 0.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(min), CEREAL_NVP(max));
  }
};

struct ClipByNormAttrs {
  float max_norm = 0.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(max_norm));
  }
};

void add_scale_ops(OpTable& table);

}  // namespace fleet::fluid
