#include "fluid/ops/fill.h"

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
