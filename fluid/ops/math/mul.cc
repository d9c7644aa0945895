#include "fluid/ops/math/mul.h"

#include <cmath>

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

namespace {

// X has m k elements, Y k n, and the result m n. `times`: 2 for a multiplication and an addition.
double product_flops(const RunShapes& run, const std::vector<int64_t>& out, bool batched,
                     double times) {
  const double results = batched && out.size() > 2
                             ? static_cast<double>(out[out.size() - 1] * out[out.size() - 2])
                             : element_count(out);
  const double batches = results == 0 ? 0 : element_count(out) / results;
  if (batches == 0) return 0;
  const double x = element_count(run.input("X"));
  const double y = element_count(run.input("Y"));
  return times * batches * std::sqrt(x / batches * y / batches * results);
}

using Flops = std::function<double(const RunShapes&)>;

Flops forward_flops(bool batched) {
  return
      [batched](const RunShapes& run) { return product_flops(run, run.output("Out"), batched, 2); };
}

// Two products of the size of the forward one.
Flops gradient_flops(bool batched) {
  return [batched](const RunShapes& run) {
    return product_flops(run, run.input("Out@GRAD"), batched, 4);
  };
}

template <class Attrs>
void add_product(OpTable& table, const std::string& type, InferFunction infer, bool batched) {
  const GradSpec of_both = {.inputs = {"X", "Y"}, .wanted = {"X", "Y"}};
  OpSchema product = make_schema<Attrs>(type, {one("X"), one("Y")}, {one("Out")}, std::move(infer),
                                        usual_gradient(of_both));
  product.flops = forward_flops(batched);
  table.add(std::move(product));
  OpSchema gradient = make_schema<Attrs>(type + "_grad", {one("X"), one("Y"), one("Out@GRAD")},
                                         {maybe("X@GRAD"), maybe("Y@GRAD")},
                                         infer_shape_like({{"X", "X@GRAD"}, {"Y", "Y@GRAD"}}));
  gradient.flops = gradient_flops(batched);
  table.add(std::move(gradient));
}

}  // namespace

void add_mul_ops(OpTable& table) {
  add_product<MulAttrs>(table, "mul", infer_mul, false);
  add_product<MatmulAttrs>(table, "matmul", infer_matmul, true);
}

}  // namespace fleet::fluid
