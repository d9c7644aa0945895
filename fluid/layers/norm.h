// Normalisation and dropout. See nn.h for what all layers have in common.
#pragma once

#include <string>

#include "fluid/layers/numbers.h"
#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

struct BatchNormOptions {
  std::string act = {};
  bool is_test = false;
  Real momentum = 0.9;  // of the running statistics; a variable is of float32
  double epsilon = 1e-5;
  ParamAttr param_attr = {};  // scale, 1 at first
  ParamAttr bias_attr = {};
  std::string data_layout = "NCHW";
  bool in_place = false;
  std::string name = {};
  std::string moving_mean_name = {};
  std::string moving_variance_name = {};
  bool do_model_average_for_mean_and_var = true;
  bool use_global_stats = false;  // the running statistics in training too
};
// Over everything but channels: dimension 1 (NCHW) or the last one (NHWC).
Variable batch_norm(const Variable& input, const BatchNormOptions& options = {});

struct LayerNormOptions {
  bool scale = true;
  bool shift = true;
  int begin_norm_axis = 1;
  double epsilon = 1e-5;
  ParamAttr param_attr = {};
  ParamAttr bias_attr = {};
  std::string act = {};
  std::string name = {};
};
// Over the dimensions from begin_norm_axis on.
Variable layer_norm(const Variable& input, const LayerNormOptions& options = {});

struct GroupNormOptions {
  double epsilon = 1e-5;
  ParamAttr param_attr = {};
  ParamAttr bias_attr = {};
  std::string act = {};
  std::string data_layout = "NCHW";
  std::string name = {};
};
// Over the channels of a group and the image.
Variable group_norm(const Variable& input, int groups, const GroupNormOptions& options = {});

struct DropoutOptions {
  bool is_test = false;
  int seed = 0;  // 0: the program's
  std::string name = {};
  // "downgrade_in_infer": test runs multiply by 1 - dropout_prob. "upscale_in_train": training
  // divides by it.
  std::string dropout_implementation = "downgrade_in_infer";
};
// Sets each element to 0 with probability dropout_prob.
Variable dropout(const Variable& x, double dropout_prob, const DropoutOptions& options = {});

}  // namespace fleet::fluid::layers
