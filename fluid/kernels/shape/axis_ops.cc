#include "fluid/kernels/shape/axis_ops.h"

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/ops/shape/index_ops.h"

namespace fleet::fluid {

CumulativeSum cumsum_of(PrepareContext& context, DType dtype) {
  const auto attrs = context.attrs<CumsumAttrs>();
  const Shape& given = context.in("X").shape;
  const Shape shape = attrs.flatten ? Shape{given.numel()} : given;
  return {.lines = AxisView(shape, attrs.flatten ? 0 : attrs.axis),
          .exclusive = attrs.exclusive,
          .reverse = attrs.reverse,
          .x = context.input("X"),
          .out = context.set_output("Out", shape, dtype)};
}

ExtremePlaces extreme_places_of(PrepareContext& context) {
  const auto attrs = context.attrs<ArgMaxAttrs>();
  const Shape& x = context.in("X").shape;
  const AxisView lines(x, static_cast<int>(attrs.axis));
  context.require(lines.n > 0, "X", "elements along the axis", x.to_string());
  const auto axis = static_cast<int>(attrs.axis < 0 ? attrs.axis + x.rank() : attrs.axis);
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis || attrs.keepdims) shape.push_back(i == axis ? 1 : x[i]);
  }
  if (shape.rank() == 0) shape.push_back(1);
  const DType dtype = attrs.dtype.empty() ? DType::kInt64 : parse_dtype(attrs.dtype);
  return {.lines = lines,
          .wide = dtype == DType::kInt64,
          .x = context.input("X"),
          .out = context.set_output("Out", shape, dtype)};
}

SortedLines sorted_lines_of(PrepareContext& context, DType dtype) {
  const auto attrs = context.attrs<ArgsortAttrs>();
  const Shape shape = context.in("X").shape;
  return {.lines = AxisView(shape, attrs.axis),
          .descending = attrs.descending,
          .x = context.input("X"),
          .out = context.set_output("Out", shape, dtype),
          .indices = context.set_output("Indices", shape, DType::kInt64)};
}

SortedLinesBack sorted_lines_back_of(PrepareContext& context, DType dtype) {
  const Shape shape = context.in("X").shape;
  const ValueSpec& indices = context.in("Indices");
  context.require(indices.shape == shape && indices.dtype == DType::kInt64, "Indices",
                  str_cat("int64", shape), str_cat(dtype_name(indices.dtype), indices.shape));
  return {.lines = AxisView(shape, context.attrs<ArgsortAttrs>().axis),
          .indices = context.input("Indices"),
          .grad = input_like(context, "Out@GRAD", "X"),
          .out = context.set_output("X@GRAD", shape, dtype)};
}

OneHotRows one_hot_of(PrepareContext& context) {
  const auto attrs = context.attrs<OneHotAttrs>();
  Shape shape = context.in("X").shape;
  context.require(attrs.depth >= 1, "X", "depth >= 1", str_cat(attrs.depth));
  const int64_t count = shape.numel();
  if (context.op().type == "one_hot_v2") {
    shape.push_back(attrs.depth);
  } else {
    context.require(shape.rank() >= 1 && shape[-1] == 1, "X", "[..., 1]", shape.to_string());
    shape.set(-1, attrs.depth);
  }
  return {.count = count,
          .depth = attrs.depth,
          .allow_outside = attrs.allow_out_of_range,
          .dtype = attrs.dtype,
          .x = context.input("X"),
          .out = context.set_output("Out", shape, attrs.dtype)};
}

}  // namespace fleet::fluid
