// What may be said of mixed precision.
#pragma once

#include <set>
#include <string>

#include "fluid/core/dtype.h"

namespace fleet::fluid::mixed_precision {

// Changes to the lists of Paddle Fluid 1.8.5 (AutoMixedPrecisionLists). There, conv2d, matmul and
// mul compute in 16 bits. Losses, softmax, exp, log, square, mean and sum compute in float32, and
// so does every op that is in no list. Those in between (elementwise_*, activations, batch_norm,
// pool2d, dropout, reshape2 …) compute in float32 where an op of float32 makes one of their inputs,
// else in 16 bits where an op of 16 bits does, and else in the type that they are given.
struct PrecisionLists {
  std::set<std::string> custom_white_list = {};  // op types that compute in 16 bits
  std::set<std::string> custom_black_list = {};  // op types that compute in float32
  // Variables: ops of any list that read or write one of them compute in float32. The loss is one.
  std::set<std::string> custom_black_varnames = {};
};

// Names and defaults of Paddle Fluid 1.8.5.
struct LossScalingOptions {
  double init_loss_scaling = 32768.0;
  bool use_dynamic_loss_scaling = true;
  // Of dynamic loss scaling: the factor grows by incr_ratio after more than so many steps in a row
  // whose gradients were finite, as long as it stays finite itself,
  int incr_every_n_steps = 1000;
  // and shrinks by decr_ratio, down to 1, after more than so many whose gradients were not, with no
  // other step in between.
  int decr_every_n_nan_or_inf = 2;
  double incr_ratio = 2.0;
  double decr_ratio = 0.8;
};

struct Options {
  // kFloat16, or kBFloat16, which has float32's range: with it, losses are not scaled, and nothing
  // is skipped.
  DType dtype = DType::kFloat16;
  PrecisionLists lists = {};
  LossScalingOptions scaling = {};  // of float16
};

}  // namespace fleet::fluid::mixed_precision
