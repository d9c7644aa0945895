#include "fluid/ops/math/elementwise.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

template <class Attrs>
void infer_elementwise(InferContext& context) {
  const VarDesc& x = context.input("X");
  const VarDesc& y = context.input("Y");
  context.require_dtype("Y", x.dtype);
  const auto axis = context.attrs<Attrs>().axis;
  const std::string where =
      str_cat("op '", context.op().type, "', X '", x.name, "', Y '", y.name, "'");
  context.set_output("Out", broadcast_shape(x.shape, y.shape, axis, where), x.dtype, 0,
                     x.lod_level);
}

// `shape` laid along `rank` dimensions from `axis` on, ones elsewhere.
Shape laid_out(const Shape& shape, int rank, int axis) {
  std::vector<int64_t> dims(static_cast<size_t>(rank), 1);
  std::copy(shape.begin(), shape.end(), dims.begin() + axis);
  return Shape(dims);
}

}  // namespace

Shape broadcast_shape(const Shape& x, const Shape& y, int32_t axis, std::string_view where) {
  const auto fail = [&](std::string_view what) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = std::string(what),
                 .where = std::string(where),
                 .expected = "equal dimensions, or 1, along the axis",
                 .got = str_cat("X ", x, ", Y ", y, ", axis ", axis),
                 .fix = "give the axis at which the smaller one begins, or reshape it"});
  };
  const int rank = std::max(x.rank(), y.rank());
  const int lower = std::min(x.rank(), y.rank());
  const int start = axis == -1 ? rank - lower : axis;
  if (start < 0 || start + lower > rank) fail("the axis leaves the larger variable");
  const Shape a = laid_out(x, rank, x.rank() == rank ? 0 : start);
  const Shape b = laid_out(y, rank, y.rank() == rank ? 0 : start);
  Shape out;
  for (int i = 0; i < rank; ++i) {
    if (a[i] != b[i] && a[i] > 1 && b[i] > 1) fail("the variables do not broadcast");
    if (a[i] == 0 || b[i] == 0) {
      out.push_back(0);
    } else if (a[i] > 1 || b[i] > 1 || (a[i] == 1 && b[i] == 1)) {
      out.push_back(std::max(a[i], b[i]));
    } else {
      out.push_back(Shape::kUnknown);
    }
  }
  return out;
}

void add_elementwise_ops(OpTable& table) {
  for (const std::string kind : {"add", "sub", "mul", "div", "max", "min", "pow"}) {
    const std::string type = "elementwise_" + kind;
    GradSpec spec{.inputs = {"X", "Y"}, .wanted = {"X", "Y"}};
    std::vector<SlotSpec> grad_inputs = {one("X"), one("Y"), one("Out@GRAD")};
    if (kind == "div") {
      spec.outputs = {"Out"};
      grad_inputs.push_back(one("Out"));
    }
    table.add(make_schema<ElementwiseAttrs>(type, {one("X"), one("Y")}, {one("Out")},
                                            infer_elementwise<ElementwiseAttrs>,
                                            usual_gradient(spec)));
    table.add(make_schema<ElementwiseAttrs>(type + "_grad", grad_inputs,
                                            {maybe("X@GRAD"), maybe("Y@GRAD")},
                                            infer_like({{"X", "X@GRAD"}, {"Y", "Y@GRAD"}})));
  }
  for (const char* type : {"elementwise_mod", "elementwise_floordiv"}) {
    table.add(make_schema<FloorDivisionAttrs>(type, {one("X"), one("Y")}, {one("Out")},
                                              infer_elementwise<FloorDivisionAttrs>));
  }
}

}  // namespace fleet::fluid
