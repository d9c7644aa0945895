// What a program says of a variable.
#pragma once

#include <cereal/cereal.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/optional_ptr.h"
#include "fluid/core/shape.h"
#include "fluid/program/attribute.h"

namespace fleet::fluid {

enum class VarKind : uint8_t {
  kLodTensor,
  kSelectedRows,
  kLodTensorArray,
  kStepScopes,
  kRaw,
  kGrowingTable,  // of shape [-1, width]: rows by 64-bit id (fluid/ops/nn/growing_table.h)
};

std::string_view var_kind_name(VarKind kind);  // "LOD_TENSOR"
VarKind parse_var_kind(std::string_view name);

// Which part of an origin variable a slice is. Slices are whole rows of the first dimension.
struct SliceInfo {
  std::string origin;  // name of the whole variable
  std::vector<int64_t> origin_shape;
  int64_t offset = 0;    // in elements
  int32_t block_id = 0;  // position among the slices of the origin

  bool operator==(const SliceInfo&) const = default;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(origin), CEREAL_NVP(origin_shape), CEREAL_NVP(offset), CEREAL_NVP(block_id));
  }
};

// A regularizer or gradient clip asked for on one parameter: a kind such as "L2Decay",
// "L1Decay", "ClipByValue", "ClipByNorm", "ClipByGlobalNorm", and its numbers by name.
struct Penalty {
  std::string kind;
  std::map<std::string, double> values;

  bool operator==(const Penalty&) const = default;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(kind), CEREAL_NVP(values));
  }
};

struct VarDesc {
  std::string name;
  VarKind kind = VarKind::kLodTensor;
  DType dtype = DType::kFloat32;
  // Control variables (outputs of send and of the barriers) have neither type nor shape.
  bool typed = true;
  Shape shape;
  int32_t lod_level = 0;
  bool persistable = false;
  bool stop_gradient = false;
  bool is_data = false;

  bool is_parameter = false;
  bool trainable = true;       // parameters only
  double learning_rate = 1.0;  // parameters only: factor on the optimizer's rate
  OptionalPtr<Penalty> regularizer;
  OptionalPtr<Penalty> gradient_clip;
  bool do_model_average = true;  // parameters only: averages over steps are kept of it

  OptionalPtr<SliceInfo> slice;

  bool operator==(const VarDesc&) const = default;
};

}  // namespace fleet::fluid
