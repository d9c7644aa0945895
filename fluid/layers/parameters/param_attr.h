// What a layer may be told of a parameter it makes.
#pragma once

#include <optional>
#include <string>

#include "fluid/layers/parameters/initializer.h"

namespace fleet::fluid {

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
  // The layer does without this parameter; for biases.
  bool omit = false;
};

// For bias_attr: `fc(x, 10, {.bias_attr = no_bias()})`.
inline ParamAttr no_bias() {
  return {.omit = true};
}

}  // namespace fleet::fluid
