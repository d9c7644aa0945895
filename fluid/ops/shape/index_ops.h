// Ops that take elements from places or put them there.
//
//   slice         Input, StartsTensor?, EndsTensor?, StartsTensorList?, EndsTensorList? -> Out:
//                 [starts, ends) along `axes`; negative ones count from the end, and what lies
//                 outside is cut; `decrease_axis` dimensions, of size 1 then, are left out
//   slice_grad    Input, Out@GRAD and the same tensors -> Input@GRAD
//   gather        X, Index (int32 or int64, [n] or [n, 1]) -> Out [n, ...]: rows of X
//   gather_grad   Index, X, Out@GRAD -> X@GRAD: a row that is taken several times gets the sum of
//                 its gradients, or with `overwrite` that of the last taking only
//   scatter       X, Ids [n], Updates [n, ...] -> Out: X with rows replaced, the last of a repeated
//                 id winning; `overwrite` off: named rows set to 0, then updates added
//   scatter_grad  Ids, Updates, Out@GRAD -> X@GRAD, Updates@GRAD (each optional)
//   expand        X, ExpandTimes?, expand_times_tensor? -> Out: repeated along each dimension
//   expand_grad   X, Out@GRAD and the same tensors -> X@GRAD
//   pad           X -> Out: paddings[2 d] before and paddings[2 d + 1] behind in dimension d
//   pad_grad      Out@GRAD -> X@GRAD
//   cumsum        X -> Out: sums along `axis`; its gradient is a cumsum the other way
//   one_hot       X (int32 or int64, [..., 1]), depth_tensor? -> Out [..., depth]
//   one_hot_v2    X [...], depth_tensor? -> Out [..., depth]
//   arg_max, arg_min  X -> Out: the position of the first largest (smallest) along `axis`
//   argsort       X -> Out, Indices (int64): sorted along `axis`, equal elements in their order
//   argsort_grad  Indices, X, Out@GRAD -> X@GRAD
//   reverse       X -> Out: turned around along `axis`; its gradient is a reverse
//   hash          X (int32 or int64, [n, w]) -> Out [n, num_hash, 1]: XXH64 of a row's bytes with
//   the
//                 seeds 0 to num_hash - 1, modulo mod_by; no gradient
//   shape         Input -> Out [rank] (int32); no gradient
//
// `overwrite` is on by default in gather, as Paddle has it; layers::gather switches it off,
// since a gradient that forgets is none.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct SliceAttrs {
  std::vector<int32_t> axes;
  std::vector<int32_t> starts;
  std::vector<int32_t> ends;
  std::vector<int32_t> decrease_axis;
  // 1: known before the run, -1: from a tensor; without meaning beside the slots.
  std::vector<int32_t> infer_flags;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axes), CEREAL_NVP(starts), CEREAL_NVP(ends), CEREAL_NVP(decrease_axis),
       CEREAL_NVP(infer_flags));
  }
};

struct GatherAttrs {
  bool overwrite = true;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(overwrite));
  }
};

struct ScatterAttrs {
  bool overwrite = true;
  // X has the whole gradient, the rows that were replaced too, and every update that of its row.
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(overwrite), CEREAL_NVP(paddle_form));
  }
};

struct ExpandAttrs {
  std::vector<int32_t> expand_times;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(expand_times));
  }
};

struct PadAttrs {
  std::vector<int32_t> paddings;
  float pad_value = 0.0f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(paddings), CEREAL_NVP(pad_value));
  }
};

// exclusive: an element's sum is of those before it; reverse: sums run from the end.
struct CumsumAttrs {
  int32_t axis = -1;
  bool flatten = false;  // X taken as a vector
  bool exclusive = false;
  bool reverse = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(flatten), CEREAL_NVP(exclusive), CEREAL_NVP(reverse));
  }
};

// A value outside [0, depth) is an error, or a row of zeros with allow_out_of_range.
struct OneHotAttrs {
  int32_t depth = -1;
  DType dtype = DType::kFloat32;
  bool allow_out_of_range = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(depth), CEREAL_NVP(dtype), CEREAL_NVP(allow_out_of_range));
  }
};

struct ArgMaxAttrs {
  int64_t axis = -1;
  bool keepdims = false;
  std::string dtype;  // int32 or int64; empty: int64
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(keepdims), CEREAL_NVP(dtype));
  }
};

struct ArgsortAttrs {
  int32_t axis = -1;
  bool descending = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis), CEREAL_NVP(descending));
  }
};

struct ReverseAttrs {
  std::vector<int32_t> axis;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(axis));
  }
};

struct HashAttrs {
  int32_t num_hash = 1;
  int64_t mod_by = 100000;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(num_hash), CEREAL_NVP(mod_by));
  }
};

void add_index_ops(OpTable& table);

// The part of `from` that a slice takes: first element and length of each dimension, and the shape
// that Out gets. Unknown dimensions stay unknown. Throws ProgramError that names `where`.
struct SliceRange {
  std::vector<int64_t> first;
  Shape length;
  Shape out;
};
SliceRange slice_range(const Shape& from, const SliceAttrs& attrs, std::string_view where);

}  // namespace fleet::fluid
