// Deep gradient compression (Lin et al., "Deep Gradient Compression", ICLR 2018): each logical
// shard sends only the largest elements of what its gradients have added up to, and keeps the rest
// for later steps.
//
//   dgc           Param, Grad, Velocity, U, V, current_step -> Grad_out, U_out, V_out: what a shard
//                 sends of its gradient. U and V are arrays with a tensor for each logical shard
//                 that this process computes; the outputs are the same variables.
//   dgc_momentum  Param, Grad, Velocity, LearningRate, current_step -> ParamOut, VelocityOut: the
//                 update by the sum over the shards
//
// current_step is [1] int64, counted from 0. A step before rampup_begin_step is one of momentum.
// From then on, with g the gradient of the shard's mean loss, clipped, and decay added to it:
//   u = mu u + g; v = v + u                (Nesterov: u = mu (u + g); v = v + u + g)
//   send the k elements of v with the largest magnitude, as zero in v and u from then on
//   p -= lr (mean over the shards of what they sent)
// k is n (1 - sparsity), rounded, at least 1; of equal magnitudes those at lower positions go
// first. In step rampup_begin_step u is Velocity, as Paddle has it, and v is zeros; a shard that
// begins later, because its job was loaded from a checkpoint, has zeros in both.
//
// Grad_out is of selected rows, one an element (height n, width 1), where few elements are sent,
// and else a dense tensor with zeros: the bits of a step do not depend on it.
#pragma once

#include <cstdint>
#include <vector>

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

inline constexpr const char* kCompress = "dgc";

// Counts the steps of programs that compress gradients.
inline constexpr const char* kDgcCounter = "@DGC_COUNTER@";

struct DgcAttrs {
  float m = 0.9f;  // mu
  bool use_nesterov = false;
  // The shares of elements that are kept back: the i-th of s during the i-th part of rampup_step
  // steps, cut into s parts; the last one from then on.
  std::vector<double> sparsity = {0.999};
  int64_t rampup_begin_step = 0;
  int64_t rampup_step = 1;
  // 0: none; 1: regular_coeff * sign(p) is added to g; 2: regular_coeff * p.
  int32_t regular_type = 0;
  float regular_coeff = 0.0f;
  // g of the shard is scaled down to this Euclidean norm if it is larger; 0: it is not.
  float clip_norm = 0.0f;
  // What Grad was multiplied with in the program: 1 / shards in one that adds gradients up.
  double grad_scale = 1.0;
  // Nesterov's v takes Grad as it is, without grad_scale, clip and decay, as Paddle 1.8 does.
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(m), CEREAL_NVP(use_nesterov), CEREAL_NVP(sparsity), CEREAL_NVP(rampup_begin_step),
       CEREAL_NVP(rampup_step), CEREAL_NVP(regular_type), CEREAL_NVP(regular_coeff),
       CEREAL_NVP(clip_norm), CEREAL_NVP(grad_scale), CEREAL_NVP(paddle_form));
  }
};

struct DgcMomentumAttrs {
  float mu = 0.9f;
  bool use_nesterov = false;
  int64_t rampup_begin_step = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(mu), CEREAL_NVP(use_nesterov), CEREAL_NVP(rampup_begin_step));
  }
};

// What is sent in a step of n elements.
struct DgcSent {
  int64_t elements = 0;
  bool as_rows = false;
};
DgcSent dgc_sent(const DgcAttrs& attrs, int64_t step, int64_t n);

void add_dgc_ops(OpTable& table);

}  // namespace fleet::fluid
