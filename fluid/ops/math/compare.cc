#include "fluid/ops/math/compare.h"

#include "base/strings.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_broadcast(InferContext& context, int32_t axis) {
  const VarDesc& x = context.input("X");
  const VarDesc& y = context.input("Y");
  context.require_dtype("Y", x.dtype);
  const std::string where =
      str_cat("op '", context.op().type, "', X '", x.name, "', Y '", y.name, "'");
  context.set_output("Out", broadcast_shape(x.shape, y.shape, axis, where), DType::kBool, 0,
                     x.lod_level);
}

void infer_compare(InferContext& context) {
  infer_broadcast(context, context.attrs<CompareAttrs>().axis);
}

void infer_logical(InferContext& context) {
  context.require_dtype("X", DType::kBool);
  infer_broadcast(context, -1);
}

void infer_logical_not(InferContext& context) {
  context.require_dtype("X", DType::kBool);
  context.share("X", "Out");
}

void infer_where(InferContext& context) {
  context.require_dtype("Condition", DType::kBool);
  const VarDesc& x = context.input("X");
  context.require_dtype("Y", x.dtype);
  for (const char* slot : {"Condition", "Y"}) {
    const Shape& shape = context.input(slot).shape;
    context.require(shape.compatible(x.shape), slot, str_cat("X's shape, ", x.shape),
                    shape.to_string(), "expand the smaller one");
  }
  context.share("X", "Out");
}

void infer_where_index(InferContext& context) {
  context.require_dtype("Condition", DType::kBool);
  const Shape& shape = context.input("Condition").shape;
  context.require(shape.rank() >= 1, "Condition", "at least one dimension", shape.to_string());
  context.set_output("Out", Shape{Shape::kUnknown, shape.rank()}, DType::kInt64);
}

void infer_one_truth(InferContext& context) {
  context.set_output("Out", Shape{1}, DType::kBool);
}

void infer_truth_like_x(InferContext& context) {
  context.set_output("Out", Shape{1}, context.input("X").dtype);
}

}  // namespace

void add_compare_ops(OpTable& table) {
  for (const char* type :
       {"less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"}) {
    table.add(make_schema<CompareAttrs>(type, {one("X"), one("Y")}, {one("Out")}, infer_compare));
  }
  for (const char* type : {"logical_and", "logical_or", "logical_xor"}) {
    table.add(make_schema<NoAttrs>(type, {one("X"), one("Y")}, {one("Out")}, infer_logical));
  }
  table.add(make_schema<NoAttrs>("logical_not", {one("X")}, {one("Out")}, infer_logical_not));
  table.add(make_schema<NoAttrs>(
      "where", {one("Condition"), typed(one("X")), one("Y")}, {one("Out")}, infer_where,
      usual_gradient({.inputs = {"Condition", "X", "Y"}, .wanted = {"X", "Y"}})));
  table.add(make_schema<NoAttrs>(
      "where_grad", {one("Condition"), typed(one("X")), one("Y"), one("Out@GRAD")},
      {maybe("X@GRAD"), maybe("Y@GRAD")}, infer_like({{"X", "X@GRAD"}, {"Y", "Y@GRAD"}})));
  table.add(make_schema<NoAttrs>("where_index", {one("Condition")}, {typed(one("Out"))},
                                 infer_where_index));
  table.add(make_schema<NoAttrs>("isfinite", {one("X")}, {one("Out")}, infer_one_truth));
  for (const char* type : {"isinf", "isnan"}) {
    table.add(make_schema<NoAttrs>(type, {one("X")}, {one("Out")}, infer_truth_like_x));
  }
}

}  // namespace fleet::fluid
