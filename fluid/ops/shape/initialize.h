// Ops that only initialisers use.
//
//   truncated_gaussian_random  -> Out: normal values, drawn within two deviations of the mean
//   assign_value               -> Out: the values given, of bool, int32, int64 or float32
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct TruncatedGaussianRandomAttrs {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  float mean = 0.0f;
  float std = 1.0f;
  int32_t seed = 0;  // 0: the program's
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(shape), CEREAL_NVP(dtype), CEREAL_NVP(mean), CEREAL_NVP(std), CEREAL_NVP(seed));
  }
};

// The list of the element type holds one value per element, the others are empty.
struct AssignValueAttrs {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  std::vector<int32_t> bool_values;
  std::vector<float> fp32_values;
  std::vector<int32_t> int32_values;
  std::vector<int64_t> int64_values;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(shape), CEREAL_NVP(dtype), CEREAL_NVP(bool_values), CEREAL_NVP(fp32_values),
       CEREAL_NVP(int32_values), CEREAL_NVP(int64_values));
  }
  // How many values the element type's list holds; 0 for a type that has none.
  size_t count() const;
};

void add_initialize_ops(OpTable& table);

}  // namespace fleet::fluid
