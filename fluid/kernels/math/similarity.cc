#include "fluid/kernels/math/similarity.h"

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/ops/math/similarity.h"

namespace fleet::fluid {
namespace {

CosineRows compared_rows(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const Shape& y = context.in("Y").shape;
  context.require(x.rank() >= 2, "X", "[n, ...]", x.to_string());
  const int64_t length = x.numel(1, x.rank());
  const bool fits =
      y.rank() == x.rank() && y.numel(1, y.rank()) == length && (y[0] == x[0] || y[0] == 1);
  context.require(fits, "Y", str_cat(x, ", or one row of it"), y.to_string());
  return {.rows = x[0],
          .length = length,
          .shared = y[0] == 1 && x[0] != 1,
          .x = context.input("X"),
          .y = context.input("Y")};
}

}  // namespace

LineNorm norm_of(PrepareContext& context, DType dtype) {
  const auto attrs = context.attrs<NormAttrs>();
  const Shape shape = context.in("X").shape;
  return {.lines = AxisView(shape, attrs.axis),
          .epsilon = static_cast<double>(attrs.epsilon),
          .x = context.input("X"),
          .norm = context.set_output("Norm", with_one_class(shape, attrs.axis), dtype),
          .out = context.set_output("Out", shape, dtype)};
}

LineNorm norm_back_of(PrepareContext& context, DType dtype) {
  const Shape shape = context.in("X").shape;
  const AxisView lines(shape, context.attrs<NormAttrs>().axis);
  return {.lines = lines,
          .x = context.input("X"),
          .norm = sized_input(context, "Norm", lines.lines(), dtype, "one a line of X"),
          .grad = input_like(context, "Out@GRAD", "X"),
          .out = context.set_output("X@GRAD", shape, dtype)};
}

CosineRows cosine_of(PrepareContext& context, DType dtype) {
  CosineRows rows = compared_rows(context);
  const Shape column{rows.rows, 1};
  rows.cosine = context.set_output("Out", column, dtype);
  rows.x_norm = context.set_output("XNorm", column, dtype);
  rows.y_norm = context.set_output("YNorm", Shape{rows.y_rows(), 1}, dtype);
  return rows;
}

CosineRows cosine_back_of(PrepareContext& context, DType dtype) {
  CosineRows rows = compared_rows(context);
  rows.cosine = sized_input(context, "Out", rows.rows, dtype, "one a row of X");
  rows.x_norm = sized_input(context, "XNorm", rows.rows, dtype, "one a row of X");
  rows.y_norm = sized_input(context, "YNorm", rows.y_rows(), dtype, "one a row of Y");
  rows.grad = sized_input(context, "Out@GRAD", rows.rows, dtype, "one a row of X");
  rows.x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype);
  rows.y_grad = context.set_output("Y@GRAD", context.in("Y").shape, dtype);
  return rows;
}

}  // namespace fleet::fluid
