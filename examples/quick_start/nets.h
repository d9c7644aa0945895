// The net that the quick start trains.
#pragma once

#include "fluid/fluid.h"

namespace quick_start {

struct Net {
  fluid::Variable cost;        // mean cross entropy, [1]
  fluid::Variable prediction;  // class probabilities, [rows, classes]
};

// Two hidden layers of 128 tanh units and a softmax.
inline Net mlp(const fluid::Variable& x, const fluid::Variable& y, int classes) {
  namespace layers = fluid::layers;
  const auto hidden = layers::fc(layers::fc(x, 128, {.act = "tanh"}), 128, {.act = "tanh"});
  const auto prediction = layers::fc(hidden, classes, {.act = "softmax"});
  return {layers::mean(layers::cross_entropy(prediction, y)), prediction};
}

}  // namespace quick_start
