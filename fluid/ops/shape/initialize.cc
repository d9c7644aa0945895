#include "fluid/ops/shape/initialize.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_truncated(InferContext& context) {
  const auto attrs = context.attrs<TruncatedGaussianRandomAttrs>();
  context.set_output("Out", Shape(attrs.shape), attrs.dtype);
}

void infer_assign_value(InferContext& context) {
  const auto attrs = context.attrs<AssignValueAttrs>();
  const Shape shape(attrs.shape);
  const bool known = shape.known() && static_cast<size_t>(shape.numel()) == attrs.count();
  context.require(known, "Out", str_cat("one value for each element of ", shape),
                  str_cat(attrs.count(), " values of ", dtype_name(attrs.dtype)),
                  "give as many values, in the list of the element type");
  context.set_output("Out", shape, attrs.dtype);
}

}  // namespace

size_t AssignValueAttrs::count() const {
  switch (dtype) {
    case DType::kBool:
      return bool_values.size();
    case DType::kFloat32:
      return fp32_values.size();
    case DType::kInt32:
      return int32_values.size();
    case DType::kInt64:
      return int64_values.size();
    default:
      return 0;
  }
}

void add_initialize_ops(OpTable& table) {
  table.add(draws_numbers(make_schema<TruncatedGaussianRandomAttrs>(
      "truncated_gaussian_random", {}, {one("Out")}, infer_truncated)));
  table.add(make_schema<AssignValueAttrs>("assign_value", {}, {one("Out")}, infer_assign_value));
}

}  // namespace fleet::fluid
