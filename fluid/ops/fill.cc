#include "fluid/ops/fill.h"

#include <charconv>
#include <cmath>

#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

template <class Attrs>
void infer_fill(InferContext& context) {
  const auto attrs = context.attrs<Attrs>();
  context.set_output("Out", Shape(attrs.shape), attrs.dtype);
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
  const std::vector<SlotSpec> shape_slots = {maybe("ShapeTensor"), maybe_many("ShapeTensorList")};
  table.add(make_schema<FillConstantAttrs>(
      "fill_constant", {maybe("ShapeTensor"), maybe_many("ShapeTensorList"), maybe("ValueTensor")},
      {one("Out")}, infer_fill<FillConstantAttrs>));
  table.add(make_schema<NoAttrs>("fill_zeros_like", {one("X")}, {one("Out")},
                                 infer_like({{"X", "Out"}})));
  table.add(make_schema<UniformRandomAttrs>("uniform_random", shape_slots, {one("Out")},
                                            infer_fill<UniformRandomAttrs>));
  table.add(make_schema<GaussianRandomAttrs>("gaussian_random", shape_slots, {one("Out")},
                                             infer_fill<GaussianRandomAttrs>));
  table.add(make_schema<FakeInitAttrs>("fake_init", {}, {one("Out")}, infer_fake_init));
}

}  // namespace fleet::fluid
