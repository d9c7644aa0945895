#include "fluid/ops/mul.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_mul(InferContext& context) {
  const VarDesc& x = context.input("X");
  const VarDesc& y = context.input("Y");
  const auto attrs = context.attrs<MulAttrs>();
  context.require(attrs.x_num_col_dims > 0 && attrs.x_num_col_dims < x.shape.rank(), "X",
                  str_cat("more than ", attrs.x_num_col_dims, " dimensions (x_num_col_dims), >= 1"),
                  x.shape.to_string());
  context.require(attrs.y_num_col_dims > 0 && attrs.y_num_col_dims < y.shape.rank(), "Y",
                  str_cat("more than ", attrs.y_num_col_dims, " dimensions (y_num_col_dims), >= 1"),
                  y.shape.to_string());
  context.require_dtype("Y", x.dtype);
  const int64_t columns = x.shape.numel(attrs.x_num_col_dims, x.shape.rank());
  const int64_t rows = y.shape.numel(0, attrs.y_num_col_dims);
  context.require(columns < 0 || rows < 0 || columns == rows, "Y",
                  str_cat(columns, " rows, the columns of X '", x.name, "' ", x.shape),
                  str_cat(rows, " rows ", y.shape));
  Shape out;
  for (int i = 0; i < attrs.x_num_col_dims; ++i) out.push_back(x.shape[i]);
  for (int i = attrs.y_num_col_dims; i < y.shape.rank(); ++i) out.push_back(y.shape[i]);
  context.set_output("Out", out, x.dtype, 0, x.lod_level);
}

}  // namespace

void add_mul_ops(OpTable& table) {
  table.add(make_schema<MulAttrs>("mul", {one("X"), one("Y")}, {one("Out")}, infer_mul,
                                  usual_gradient({.inputs = {"X", "Y"}, .wanted = {"X", "Y"}})));
  table.add(make_schema<MulAttrs>("mul_grad", {one("X"), one("Y"), one("Out@GRAD")},
                                  {maybe("X@GRAD"), maybe("Y@GRAD")},
                                  infer_shape_like({{"X", "X@GRAD"}, {"Y", "Y@GRAD"}})));
}

}  // namespace fleet::fluid
