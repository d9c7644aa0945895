// elementwise_{add,sub,mul,div,max,min,pow,mod,floordiv}: two tensors, the one of lower rank
// broadcast.
//
//   elementwise_*       X, Y -> Out
//   elementwise_*_grad  X, Y, Out@GRAD (div: also Out) -> X@GRAD, Y@GRAD (each optional)
// The tensor of lower rank is laid along the other one from dimension `axis` on; -1 means that the
// last dimensions match. A dimension of 1 is repeated. max and min give ties to Y's gradient.
// mod and floordiv have no gradient: floordiv is the largest whole number at most X / Y, mod what
// is left, with Y's sign. Whole numbers divided by 0 are an error. With `paddle_form` quotients
// of whole numbers are cut towards 0, and what is left has X's sign.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct ElementwiseAttrs {
  int32_t axis = -1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis));
  }
};

// mod and floordiv.
struct FloorDivisionAttrs {
  int32_t axis = -1;
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(paddle_form));
  }
};

void add_elementwise_ops(OpTable& table);

// The shape that both are broadcast to; unknown dimensions stay unknown. Throws ProgramError that
// names `where` when they do not fit.
Shape broadcast_shape(const Shape& x, const Shape& y, int32_t axis, std::string_view where);

}  // namespace fleet::fluid
