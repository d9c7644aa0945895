#include "fluid/ops/math/mul.h"

#include "base/error.h"
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

void infer_matmul(InferContext& context) {
  const VarDesc& x = context.input("X");
  const VarDesc& y = context.input("Y");
  const auto attrs = context.attrs<MatmulAttrs>();
  context.require_dtype("Y", x.dtype);
  context.require(attrs.head_number == 1, "X", "head_number 1", str_cat(attrs.head_number),
                  "split the heads with reshape and transpose");
  const std::string where = str_cat("op 'matmul', X '", x.name, "', Y '", y.name, "'");
  context.set_output("Out", matmul_shape(x.shape, y.shape, attrs, where).out, x.dtype, 0,
                     x.lod_level);
}

// A vector is a row (left) or a column (right).
MatmulSide side_of(const Shape& shape, bool transpose, bool left) {
  if (shape.rank() == 1) {
    return {.batch = 0,
            .rows = left ? 1 : shape[0],
            .columns = left ? shape[0] : 1,
            .transpose = transpose};
  }
  return {.batch = shape.rank() == 2 ? 0 : shape.numel(0, shape.rank() - 2),
          .rows = shape[-2],
          .columns = shape[-1],
          .transpose = transpose};
}

bool same_batches(const Shape& x, const Shape& y) {
  if (x.rank() <= 2 || y.rank() <= 2) return true;
  if (x.rank() != y.rank()) return false;
  for (int i = 0; i < x.rank() - 2; ++i) {
    if (x[i] != y[i] && x[i] >= 0 && y[i] >= 0) return false;
  }
  return true;
}

}  // namespace

MatmulShape matmul_shape(const Shape& x, const Shape& y, const MatmulAttrs& attrs,
                         std::string_view where) {
  const auto fail = [&](std::string_view what, std::string expected) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = std::string(what),
                 .where = std::string(where),
                 .expected = std::move(expected),
                 .got = str_cat("X ", x, attrs.transpose_x ? " transposed" : "", ", Y ", y,
                                attrs.transpose_y ? " transposed" : ""),
                 .fix = "transpose or reshape one of them"});
  };
  if (x.rank() == 0 || y.rank() == 0) fail("a matrix product needs dimensions", "1 or more each");
  if (!same_batches(x, y)) fail("the batches differ", "equal leading dimensions, or a 2-D matrix");
  MatmulShape result;
  result.x = side_of(x, attrs.transpose_x, true);
  result.y = side_of(y, attrs.transpose_y, false);
  const int64_t inner = result.x.op_columns();
  if (inner >= 0 && result.y.op_rows() >= 0 && inner != result.y.op_rows()) {
    fail("the matrices do not multiply",
         str_cat("Y of ", inner, " rows, as X has columns, not ", result.y.op_rows()));
  }
  result.batch = result.x.batch != 0 ? result.x.batch : result.y.batch;
  const Shape& batches = x.rank() > 2 ? x : y;
  std::vector<int64_t> out;
  for (int i = 0; i < batches.rank() - 2; ++i) out.push_back(batches[i]);
  const bool drop_row = x.rank() == 1 && result.x.op_rows() == 1;
  const bool drop_column = y.rank() == 1 && result.y.op_columns() == 1;
  if (!drop_row) out.push_back(result.x.op_rows());
  if (!drop_column) out.push_back(result.y.op_columns());
  if (out.empty()) out.push_back(1);
  result.out = Shape(out);
  return result;
}

void add_mul_ops(OpTable& table) {
  table.add(make_schema<MulAttrs>("mul", {one("X"), one("Y")}, {one("Out")}, infer_mul,
                                  usual_gradient({.inputs = {"X", "Y"}, .wanted = {"X", "Y"}})));
  table.add(make_schema<MulAttrs>("mul_grad", {one("X"), one("Y"), one("Out@GRAD")},
                                  {maybe("X@GRAD"), maybe("Y@GRAD")},
                                  infer_shape_like({{"X", "X@GRAD"}, {"Y", "Y@GRAD"}})));
  table.add(make_schema<MatmulAttrs>("matmul", {one("X"), one("Y")}, {one("Out")}, infer_matmul,
                                     usual_gradient({.inputs = {"X", "Y"}, .wanted = {"X", "Y"}})));
  table.add(make_schema<MatmulAttrs>("matmul_grad", {one("X"), one("Y"), one("Out@GRAD")},
                                     {maybe("X@GRAD"), maybe("Y@GRAD")},
                                     infer_shape_like({{"X", "X@GRAD"}, {"Y", "Y@GRAD"}})));
}

}  // namespace fleet::fluid
