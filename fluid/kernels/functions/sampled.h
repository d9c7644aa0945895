// Losses that look at a few of many classes, for every device (fluid/ops/nn/sampled.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid::functions {

// The distribution of nce's noise classes. The arrays, for kCustom, have an element a class.
struct NoiseClasses {
  enum Kind : int32_t { kUniform, kLogUniform, kCustom };
  Kind kind = kUniform;
  int64_t classes = 0;
  const float* probabilities = nullptr;
  const int32_t* alias = nullptr;
  const float* alias_probabilities = nullptr;

  FLEET_HOST_DEVICE double probability(int64_t index) const {
    const auto value = static_cast<double>(index);
    const auto count = static_cast<double>(classes);
    if (kind == kUniform) return 1.0 / count;
    if (kind == kLogUniform) return std::log((value + 2.0) / (value + 1.0)) / std::log(count);
    return static_cast<double>(probabilities[index]);
  }

  // The class for two numbers of [0, 1), the second for kCustom alone.
  FLEET_HOST_DEVICE int64_t draw(double u, double p) const {
    const auto count = static_cast<double>(classes);
    if (kind == kLogUniform) {
      const auto drawn = static_cast<int64_t>(std::exp(u * std::log(count)));
      return (drawn < classes ? drawn : classes) - 1;
    }
    const auto drawn = static_cast<int64_t>(u * count);
    const int64_t index = drawn < classes - 1 ? drawn : classes - 1;
    if (kind == kUniform || p <= static_cast<double>(alias_probabilities[index])) return index;
    return alias[index] < 0 ? index : alias[index];
  }
};

// Of a sample with the sigmoid o of its logit; b is the expected number of its class in the noise.
FLEET_HOST_DEVICE inline double nce_cost(double o, double b, bool is_label) {
  return -std::log((is_label ? o : b) / (o + b));
}
template <class T>
FLEET_HOST_DEVICE T nce_slope(T o, T b, bool is_label) {
  return is_label ? b / (o + b) * (o - T{1}) : o * (T{1} - o) / (o + b);
}

// The paths of hierarchical_sigmoid: at most `length` nodes for each row.
struct TreePaths {
  const int64_t* label = nullptr;
  const int64_t* table = nullptr;  // null: the complete tree
  const int64_t* code = nullptr;
  int64_t classes = 0;
  int64_t length = 0;

  struct Place {
    int64_t node = -1;  // -1: the path has ended
    bool bit = false;
  };
  // Place j alone: whoever goes along the path stops at its end.
  FLEET_HOST_DEVICE Place at(int64_t row, int64_t j) const {
    if (table == nullptr) {
      const int64_t leaf = label[row] + classes;
      return {(leaf >> (j + 1)) - 1, ((leaf >> j) & 1) != 0};
    }
    const int64_t i = row * length + j;
    return {table[i] < 0 ? -1 : table[i], code[i] != 0};
  }
  // Place j, for those who did not see the places before it.
  FLEET_HOST_DEVICE Place reached(int64_t row, int64_t j) const {
    for (int64_t k = 0; table != nullptr && k < j; ++k) {
      if (at(row, k).node < 0) return {};
    }
    return at(row, j);
  }
};

// A logit of the tree is cut to [-40, 40].
template <class T>
FLEET_HOST_DEVICE T cut_logit(T z) {
  return z < T{-40} ? T{-40} : z > T{40} ? T{40} : z;
}
// From log(1 + e^z), which the loss is made of.
template <class T>
FLEET_HOST_DEVICE T tree_slope(T softplus_of_z, bool bit) {
  return -std::expm1(-softplus_of_z) - (bit ? T{1} : T{});
}

}  // namespace fleet::fluid::functions
