#include "fluid/ops/shape/fill.h"

#include <charconv>
#include <cmath>

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid {
namespace {

// Of a shape that tensors give, the attribute has the dimensions that are known.
template <class Attrs>
void infer_fill(InferContext& context) {
  const auto attrs = context.attrs<Attrs>();
  require_whole_numbers(context, "ShapeTensor", -1);
  require_whole_numbers(context, "ShapeTensorList", 1);
  require_number(context, "ValueTensor", attrs.dtype);
  Shape shape(attrs.shape);
  if (const size_t dims = context.input_count("ShapeTensorList"); dims != 0) {
    if (attrs.shape.size() != dims) shape = unknown_shape(static_cast<int64_t>(dims));
  } else if (context.has_input("ShapeTensor")) {
    shape = unknown_shape(context, "ShapeTensor");
  }
  context.set_output("Out", shape, attrs.dtype);
}

void infer_fill_like_batch(InferContext& context) {
  const auto attrs = context.attrs<FillConstantBatchSizeLikeAttrs>();
  const VarDesc& input = context.input("Input");
  Shape shape(attrs.shape);
  context.require(attrs.input_dim_idx >= 0 && attrs.input_dim_idx < input.shape.rank(), "Input",
                  str_cat("input_dim_idx in [0, ", input.shape.rank(), ")"),
                  str_cat(attrs.input_dim_idx), "name a dimension of the input");
  context.require(attrs.output_dim_idx >= 0 && attrs.output_dim_idx < shape.rank(), "Out",
                  str_cat("output_dim_idx in [0, ", shape.rank(), ")"),
                  str_cat(attrs.output_dim_idx), "name a dimension of the shape");
  const bool sequences = input.lod_level > 0 && attrs.input_dim_idx == 0;
  shape.set(attrs.output_dim_idx, sequences ? Shape::kUnknown : input.shape[attrs.input_dim_idx]);
  context.set_output("Out", shape, attrs.dtype);
}

void infer_range(InferContext& context) {
  const VarDesc& start = context.input("Start");
  for (const char* slot : {"Start", "End", "Step"}) {
    context.require_dtype(slot, start.dtype);
    const Shape& shape = context.input(slot).shape;
    context.require(shape.numel() == 1, slot, "one element", shape.to_string());
  }
  context.set_output("Out", Shape{Shape::kUnknown}, start.dtype);
}

void infer_fake_init(InferContext& context) {
  const auto attrs = context.attrs<FakeInitAttrs>();
  context.set_output("Out", Shape(attrs.shape), DType::kFloat32);
}

}  // namespace

std::string float_text(double value) {
  char text[64];
  const double size = std::fabs(value);
  const bool plain = size == 0.0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(text, text + sizeof(text), value, format).ptr;
  std::string result(text, end);
  if (plain && result.find_first_of(".n") == std::string::npos) result += ".0";
  return result;
}

void add_fill_ops(OpTable& table) {
  const std::vector<SlotSpec> shape_slots = {maybe_attribute("ShapeTensor"),
                                             maybe_attributes("ShapeTensorList")};
  table.add(make_schema<FillConstantAttrs>(
      "fill_constant",
      {maybe_attribute("ShapeTensor"), maybe_attributes("ShapeTensorList"), maybe("ValueTensor")},
      {typed(one("Out"))}, infer_fill<FillConstantAttrs>));
  table.add(make_schema<FillConstantBatchSizeLikeAttrs>(
      "fill_constant_batch_size_like", {one("Input")}, {one("Out")}, infer_fill_like_batch));
  table.add(make_schema<NoAttrs>("range", {one("Start"), one("End"), one("Step")},
                                 {typed(one("Out"))}, infer_range));
  table.add(make_schema<NoAttrs>("fill_zeros_like", {one("X")}, {one("Out")},
                                 infer_like({{"X", "Out"}})));
  table.add(draws_numbers(make_schema<UniformRandomAttrs>(
      "uniform_random", shape_slots, {typed(one("Out"))}, infer_fill<UniformRandomAttrs>)));
  table.add(draws_numbers(make_schema<GaussianRandomAttrs>(
      "gaussian_random", shape_slots, {typed(one("Out"))}, infer_fill<GaussianRandomAttrs>)));
  auto fake = make_schema<FakeInitAttrs>("fake_init", {}, {one("Out")}, infer_fake_init);
  fake.leaves_values_to_servers = true;
  table.add(std::move(fake));
}

}  // namespace fleet::fluid
