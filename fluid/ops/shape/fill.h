// Ops that make values from nothing.
//
//   fill_constant    ShapeTensor?, ShapeTensorList?, ValueTensor? -> Out
//   fill_zeros_like  X -> Out
//   uniform_random   ShapeTensor?, ShapeTensorList? -> Out: in [min, max)
//   gaussian_random  ShapeTensor?, ShapeTensorList? -> Out
//   fake_init        -> Out: its shape only; the values come from elsewhere
//   fill_constant_batch_size_like  Input -> Out: dimension output_dim_idx is Input's dimension
//                    input_dim_idx (its number of sequences, when Input has them and the index is
//                    0)
//   range            Start [1], End [1], Step [1] -> Out [ceil((End - Start) / Step)]
// The shape tensors of fill_constant (int32 or int64; one tensor, or one tensor a dimension)
// replace the attribute, its ValueTensor the value.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct FillConstantAttrs {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  float value = 0.0f;
  // Unless empty, the value as text, for integers that a float cannot hold.
  std::string str_value;
  bool force_cpu = false;
  std::string op_device;  // "cpu": the value lives on the host
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(shape), CEREAL_NVP(dtype), CEREAL_NVP(value), CEREAL_NVP(str_value),
       CEREAL_NVP(force_cpu), CEREAL_NVP(op_device));
  }
};

struct FillConstantBatchSizeLikeAttrs {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  float value = 0.0f;
  std::string str_value;
  int32_t input_dim_idx = 0;
  int32_t output_dim_idx = 0;
  bool force_cpu = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(shape), CEREAL_NVP(dtype), CEREAL_NVP(value), CEREAL_NVP(str_value),
       CEREAL_NVP(input_dim_idx), CEREAL_NVP(output_dim_idx), CEREAL_NVP(force_cpu));
  }
};

// The random numbers are those of the program's seed, or of `seed` when that is not 0, for the
// origin name of the output (base/philox.h).
struct UniformRandomAttrs {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  float min = -1.0f;
  float max = 1.0f;
  int32_t seed = 0;
  // diag_num values of diag_val are laid on the diagonal of step diag_step; 0: none.
  int32_t diag_num = 0;
  int32_t diag_step = 0;
  float diag_val = 1.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(shape), CEREAL_NVP(dtype), CEREAL_NVP(min), CEREAL_NVP(max), CEREAL_NVP(seed),
       CEREAL_NVP(diag_num), CEREAL_NVP(diag_step), CEREAL_NVP(diag_val));
  }
};

struct GaussianRandomAttrs {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;
  float mean = 0.0f;
  float std = 1.0f;
  int32_t seed = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(shape), CEREAL_NVP(dtype), CEREAL_NVP(mean), CEREAL_NVP(std), CEREAL_NVP(seed));
  }
};

struct FakeInitAttrs {
  std::vector<int64_t> shape;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(shape));
  }
};

void add_fill_ops(OpTable& table);

// The text of a number as str_value has it: the shortest that reads back, "1.0" for whole numbers.
std::string float_text(double value);

}  // namespace fleet::fluid
