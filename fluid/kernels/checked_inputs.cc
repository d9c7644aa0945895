#include "fluid/kernels/checked_inputs.h"

#include <algorithm>

#include "base/error.h"
#include "fluid/ops/math/activation.h"
#include "fluid/ops/math/mul.h"

namespace fleet::fluid {

MulShape mul_shape(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const Shape& y = context.in("Y").shape;
  const auto attrs = context.attrs<MulAttrs>();
  const int x_columns = attrs.x_num_col_dims;
  const int y_columns = attrs.y_num_col_dims;
  context.require(x_columns >= 1 && x_columns < x.rank(), "X", "x_num_col_dims inside the rank",
                  str_cat(x_columns, " of ", x));
  context.require(y_columns >= 1 && y_columns < y.rank(), "Y", "y_num_col_dims inside the rank",
                  str_cat(y_columns, " of ", y));
  MulShape shape = {.m = x.numel(0, x_columns),
                    .k = x.numel(x_columns, x.rank()),
                    .n = y.numel(y_columns, y.rank()),
                    .out = {}};
  context.require(shape.k == y.numel(0, y_columns), "Y",
                  str_cat(shape.k, " rows, as X has columns"),
                  str_cat(y.numel(0, y_columns), " rows of ", y));
  for (int i = 0; i < x_columns; ++i) shape.out.push_back(x[i]);
  for (int i = y_columns; i < y.rank(); ++i) shape.out.push_back(y[i]);
  return shape;
}

Shape with_one_class(Shape shape, int axis) {
  shape.set(axis, 1);
  return shape;
}

void require_labels(const PrepareContext& context, const Shape& wanted, DType dtype) {
  const ValueSpec& label = context.in("Label");
  context.require(label.dtype == dtype && label.shape.numel() == wanted.numel(), "Label",
                  str_cat(dtype_name(dtype), wanted),
                  str_cat(dtype_name(label.dtype), label.shape));
}

PreluView prelu_view(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const std::string mode = context.attrs<PreluAttrs>().mode;
  PreluView view{.outer = 1, .factors = 1, .inner = x.numel()};
  if (mode != "all") {
    context.require(x.rank() >= 2, "X", "two dimensions or more", x.to_string());
    view.outer = x[0];
    view.factors = mode == "channel" ? x[1] : x.numel(1, x.rank());
    view.inner = mode == "channel" ? x.numel(2, x.rank()) : 1;
  }
  context.require(context.in("Alpha").shape.numel() == view.factors, "Alpha",
                  str_cat(view.factors, " elements"), context.in("Alpha").shape.to_string());
  return view;
}

void require_condition(const PrepareContext& context, const Shape& shape) {
  const ValueSpec& condition = context.in("Condition");
  context.require(condition.dtype == DType::kBool && condition.shape == shape, "Condition",
                  str_cat("bool", shape), str_cat(dtype_name(condition.dtype), condition.shape));
}

GradientInput gradient_input(const PrepareContext& context, DType dtype) {
  const Shape& param = context.in("Param").shape;
  const ValueSpec& grad = context.in("Grad");
  GradientInput input{.position = context.input("Grad"),
                      .sparse = grad.kind == ValueKind::kSelectedRows,
                      .height = param.rank() == 0 ? 1 : param[0]};
  input.width = input.height == 0 ? 0 : param.numel() / input.height;
  const bool fits = input.sparse ? grad.shape.numel() % std::max<int64_t>(input.width, 1) == 0
                                 : grad.shape.numel() == param.numel();
  const bool tensor = input.sparse || grad.kind == ValueKind::kTensor;
  context.require(tensor && fits && grad.dtype == dtype, "Grad",
                  str_cat(dtype_name(dtype), param, ", like Param, or rows of it"),
                  str_cat(dtype_name(grad.dtype), grad.shape));
  return input;
}

int input_like(const PrepareContext& context, const char* slot, const char* other) {
  const ValueSpec& wanted = context.in(other);
  const ValueSpec& given = context.in(slot);
  context.require(given.dtype == wanted.dtype && given.shape == wanted.shape, slot,
                  str_cat(dtype_name(wanted.dtype), wanted.shape),
                  str_cat(dtype_name(given.dtype), given.shape));
  return context.input(slot);
}

int sized_input(const PrepareContext& context, const char* slot, int64_t n, DType dtype,
                const char* what) {
  const ValueSpec& spec = context.in(slot);
  context.require(spec.dtype == dtype && spec.shape.numel() == n, slot,
                  str_cat(dtype_name(dtype), ", ", n, " elements, ", what),
                  str_cat(dtype_name(spec.dtype), spec.shape));
  return context.input(slot);
}

int state_input(const PrepareContext& context, const char* slot, DType dtype) {
  const Shape& param = context.in("Param").shape;
  const ValueSpec& state = context.in(slot);
  const bool tensor = state.kind == ValueKind::kTensor;
  context.require(tensor && state.dtype == dtype && state.shape.numel() == param.numel(), slot,
                  str_cat("a dense tensor ", dtype_name(dtype), param, ", like Param"),
                  str_cat(tensor ? "" : "no dense tensor: ", dtype_name(state.dtype), state.shape));
  return context.input(slot);
}

bool takes_rows(const PrepareContext& context) {
  return context.in("X").kind == ValueKind::kSelectedRows;
}

int row_factor_input(const PrepareContext& context, DType dtype) {
  const ValueSpec& factor = context.in("Y");
  context.require(factor.dtype == dtype && factor.shape.numel() == 1, "Y",
                  "one element of X's type: selected rows are scaled only",
                  str_cat(dtype_name(factor.dtype), factor.shape));
  return context.input("Y");
}

void require_height(const SelectedRows& rows, std::string_view where) {
  if (rows.height != SelectedRows::kNoHeight) return;
  throw_error(ErrorCode::kNotSupported,
              {.what = "rows of a growing table have no height, which this needs",
               .where = std::string(where),
               .expected = "selected rows of a tensor",
               .got = "the gradient of a growing table",
               .fix = "leave the growing table out of it, or use a table with a height"});
}

void require_rows(const PrepareContext& context) {
  context.require(takes_rows(context), "X", "selected rows", "a dense tensor");
}

}  // namespace fleet::fluid
