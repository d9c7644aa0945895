// What a layer may be told of a parameter it makes.
#pragma once

#include <optional>
#include <string>

#include "fluid/layers/parameters/initializer.h"

namespace fleet::fluid {

// Asks for w = g v / |v| (Salimans and Kingma 2016) in a weight's place, with parameters "<name>_g"
// and "<name>_v", |v| being the norm over all dimensions but `dim`, or over all of them. The
// initialiser is v's, and g is |v| at first, so that w begins as it would without.
struct WeightNorm {
  std::optional<int> dim = {};
};

struct ParamAttr {
  // Empty: "<layer>.w_0", or "<layer>.b_0" for a bias. Two layers that give the same name share
  // the parameter.
  std::string name = {};
  // Absent: Xavier for weights, 0 for biases.
  std::optional<Initializer> initializer = {};
  double learning_rate = 1.0;  // factor on the optimizer's rate
  std::optional<Penalty> regularizer = {};
  bool trainable = true;
  std::optional<Penalty> gradient_clip = {};
  // Whether ModelAverage and ExponentialMovingAverage take it. Absent: yes, but for the parts of a
  // normalised weight.
  std::optional<bool> do_model_average = {};
  std::optional<WeightNorm> weight_norm = {};
  // The layer does without this parameter; for biases.
  bool omit = false;
};

// For bias_attr: `fc(x, 10, {.bias_attr = no_bias()})`.
inline ParamAttr no_bias() {
  return {.omit = true};
}

// `fc(x, 10, {.param_attr = WeightNormParamAttr(1, {.name = "w"})})`: a norm for each output.
inline ParamAttr WeightNormParamAttr(std::optional<int> dim = {}, ParamAttr attr = {}) {
  attr.weight_norm = WeightNorm{dim};
  return attr;
}

}  // namespace fleet::fluid
