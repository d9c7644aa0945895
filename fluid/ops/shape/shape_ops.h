// Ops that move or relabel elements.
//
//   concat           X (several), AxisTensor? -> Out
//   concat_grad      X, Out@GRAD, AxisTensor? -> X@GRAD (several; an empty name: not wanted)
//   split            X, AxisTensor?, SectionsTensorList? -> Out (several); gradient: concat
//   reshape2         X, Shape?, ShapeTensor? -> Out, XShape (0 before X's shape, no memory)
//   reshape2_grad    XShape, Out@GRAD -> X@GRAD
//   transpose2       X -> Out, XShape
//   transpose2_grad  XShape, Out@GRAD -> X@GRAD
//   squeeze2         X -> Out, XShape: without the dimensions `axes` of size 1; without `axes`, all
//                    of them
//   unsqueeze2       X, AxesTensor?, AxesTensorList? -> Out, XShape: with dimensions of 1 put in,
//   one
//                    axis of `axes` after the other
//   flatten2         X -> Out, XShape: a matrix, of the dimensions before `axis` and the others
//   squeeze2_grad, unsqueeze2_grad, flatten2_grad  XShape, Out@GRAD -> X@GRAD
//   stack            X (several, same shape) -> Y: a new dimension at `axis`
//   stack_grad       Y@GRAD -> X@GRAD (several)
//   unstack          X -> Y (several): dimension `axis` taken apart, `num` of them
//   unstack_grad     Y@GRAD (several) -> X@GRAD
//   cast             X -> Out; gradient: cast back
//   assign           X -> Out; gradient: assign
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct ConcatAttrs {
  int32_t axis = 0;
  // Left over from the split whose gradient this concat is; without meaning.
  int32_t num = 0;
  std::vector<int32_t> sections;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(num), CEREAL_NVP(sections));
  }
};

// Either `num` equal parts or the given sections, one of which may be -1.
struct SplitAttrs {
  int32_t axis = 0;
  int32_t num = 0;
  std::vector<int32_t> sections;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(num), CEREAL_NVP(sections));
  }
};

// One dimension may be -1 (what is left); 0 keeps X's dimension at that place.
struct Reshape2Attrs {
  std::vector<int32_t> shape;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(shape));
  }
};

struct Transpose2Attrs {
  std::vector<int32_t> axis;  // Out's dimension i is X's dimension axis[i]
  std::string data_format = "AnyLayout";
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(data_format));
  }
};

// For squeeze2 and unsqueeze2.
struct AxesAttrs {
  std::vector<int32_t> axes;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axes));
  }
};

struct FlattenAttrs {
  int32_t axis = 1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis));
  }
};

struct StackAttrs {
  int32_t axis = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis));
  }
};

struct UnstackAttrs {
  int32_t axis = 0;
  int32_t num = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(num));
  }
};

struct CastAttrs {
  DType in_dtype = DType::kFloat32;
  DType out_dtype = DType::kFloat32;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(in_dtype), CEREAL_NVP(out_dtype));
  }
};

void add_shape_ops(OpTable& table);

// What reshape2 makes of `from`; unknown dimensions stay unknown. Throws ProgramError that names
// `where`.
Shape reshaped_shape(const Shape& from, const std::vector<int32_t>& wanted, std::string_view where);

// Dimensions that only the run tells: so many, or as many as `slot`, a tensor of numbers, has, and
// `more`.
Shape unknown_shape(int64_t rank);
Shape unknown_shape(const InferContext& context, std::string_view slot, int64_t more = 0);

// What squeeze2, unsqueeze2 and flatten2 make of `from`. Throw ProgramError that names `where`.
Shape squeezed_shape(const Shape& from, const std::vector<int32_t>& axes, std::string_view where);
Shape unsqueezed_shape(const Shape& from, const std::vector<int32_t>& axes, std::string_view where);
// Of the dimensions [begin, end) as one; where one of them is unknown, minus the product of the
// others, as Paddle declares it.
int64_t flat_size(const Shape& shape, int begin, int end);
Shape flattened_shape(const Shape& from, int32_t axis, std::string_view where);

}  // namespace fleet::fluid
