#include "fluid/ops/control/tensor_array.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void check_index(const InferContext& context) {
  context.require_dtype("I", DType::kInt64);
  const Shape& shape = context.input("I").shape;
  context.require(shape.numel() == 1 || !shape.known(), "I", "one index", shape.to_string());
}

void check_array(const InferContext& context) {
  const VarDesc& x = context.input("X");
  context.require(x.kind == VarKind::kLodTensorArray, "X", "a tensor array",
                  std::string(var_kind_name(x.kind)), "make it with layers::create_array");
}

void infer_write(InferContext& context) {
  check_index(context);
  context.share("X", "Out");
  context.set_kind("Out", VarKind::kLodTensorArray);
}

void infer_read(InferContext& context) {
  check_index(context);
  check_array(context);
  context.share("X", "Out");
}

void infer_length(InferContext& context) {
  check_array(context);
  context.set_output("Out", Shape{1}, DType::kInt64);
}

void infer_join(InferContext& context) {
  check_array(context);
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<TensorArrayToTensorAttrs>();
  const int rank = x.shape.rank() + (attrs.use_stack ? 1 : 0);
  const int axis = check_axis(context, attrs.axis, rank, "X");
  Shape out;
  for (int d = 0; d < rank; ++d) {
    const int from = attrs.use_stack && d > axis ? d - 1 : d;
    out.push_back(d == axis ? Shape::kUnknown : x.shape[from]);
  }
  context.set_output("Out", out, x.dtype);
  context.set_output("OutIndex", Shape{Shape::kUnknown}, DType::kInt32);
}

void infer_array_grad(InferContext& context) {
  context.share("X", "X@GRAD");
  context.set_kind("X@GRAD", VarKind::kLodTensorArray);
}

}  // namespace

void add_tensor_array_ops(OpTable& table) {
  const GradSpec with_index{.inputs = {"X", "I"}};
  const std::vector<SlotSpec> inputs = {one("X"), one("I")};
  const std::vector<SlotSpec> grad_inputs = {one("X"), one("I"), one("Out@GRAD")};
  table.add(make_schema<NoAttrs>("write_to_array", inputs, {one("Out")}, infer_write,
                                 usual_gradient(with_index)));
  table.add(make_schema<NoAttrs>("write_to_array_grad", grad_inputs, {one("X@GRAD")},
                                 infer_like({{"X", "X@GRAD"}})));
  table.add(make_schema<NoAttrs>("read_from_array", inputs, {one("Out")}, infer_read,
                                 usual_gradient(with_index)));
  table.add(
      make_schema<NoAttrs>("read_from_array_grad", grad_inputs, {one("X@GRAD")}, infer_array_grad));
  table.add(make_schema<NoAttrs>("lod_array_length", {one("X")}, {one("Out")}, infer_length));
  const GradSpec with_x{.inputs = {"X"}};
  const std::vector<SlotSpec> joined = {one("Out"), maybe("OutIndex")};
  table.add(make_schema<TensorArrayToTensorAttrs>("tensor_array_to_tensor", {one("X")}, joined,
                                                  infer_join, usual_gradient(with_x)));
  const std::vector<SlotSpec> join_grad = {one("X"), one("Out@GRAD")};
  table.add(make_schema<TensorArrayToTensorAttrs>("tensor_array_to_tensor_grad", join_grad,
                                                  {one("X@GRAD")}, infer_array_grad));
}

}  // namespace fleet::fluid
