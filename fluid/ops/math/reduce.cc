#include "fluid/ops/math/reduce.h"

#include <set>

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_mean(InferContext& context) {
  context.set_output("Out", Shape{1}, context.input("X").dtype);
}

void infer_sum(InferContext& context) {
  const VarDesc& first = context.input("X");
  Shape out = first.shape;
  int lod_level = first.lod_level;
  bool sparse = first.kind == VarKind::kSelectedRows;
  context.require_dtype("X", first.dtype);
  for (size_t i = 1; i < context.input_count("X"); ++i) {
    const VarDesc& x = context.input("X", i);
    if (!x.shape.compatible(out)) {
      context.require(false, "X", str_cat("equal shapes, ", out),
                      str_cat(x.shape, " ('", x.name, "')"));
    }
    for (int d = 0; d < out.rank(); ++d) {
      if (out[d] < 0) out.set(d, x.shape[d]);
    }
    sparse = sparse && x.kind == VarKind::kSelectedRows;
  }
  context.set_output("Out", out, first.dtype, 0, lod_level);
  if (sparse) context.set_kind("Out", VarKind::kSelectedRows);
  if (first.kind == VarKind::kLodTensorArray) context.set_kind("Out", first.kind);
}

std::vector<Operator> sum_gradient(const GradContext& context) {
  std::vector<Operator> ops;
  for (const std::string& grad : context.grad_of_input("X")) {
    if (grad.empty()) continue;
    Operator op;
    op.type = "scale";
    op.inputs["X"] = context.grad_of_output("Out");
    op.outputs["Out"] = {grad};
    op.attrs = {{"scale", 1.0}};
    ops.push_back(std::move(op));
  }
  return ops;
}

void infer_reduce(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<ReduceAttrs>();
  const int rank = x.shape.rank();
  std::set<int> reduced;
  for (int dim : attrs.dim) {
    if (!attrs.reduce_all) reduced.insert(check_axis(context, dim, rank, "X"));
  }
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const bool gone = attrs.reduce_all || reduced.contains(i);
    if (!gone) {
      out.push_back(x.shape[i]);
    } else if (attrs.keep_dim) {
      out.push_back(1);
    }
  }
  if (out.rank() == 0) out.push_back(1);
  const DType dtype = attrs.out_dtype.empty() ? x.dtype : parse_dtype(attrs.out_dtype);
  // Rows that stay keep their sequence structure.
  const bool rows_stay = !attrs.reduce_all && !reduced.contains(0);
  context.set_output("Out", out, dtype, 0, rows_stay ? x.lod_level : 0);
}

void infer_reduce_truth(InferContext& context) {
  context.require_dtype("X", DType::kBool);
  infer_reduce(context);
}

}  // namespace

void add_reduce_ops(OpTable& table) {
  const GradSpec from_x{.inputs = {"X"}};
  const std::vector<SlotSpec> grad_inputs = {one("X"), one("Out@GRAD")};
  table.add(
      make_schema<NoAttrs>("mean", {one("X")}, {one("Out")}, infer_mean, usual_gradient(from_x)));
  table.add(make_schema<NoAttrs>("mean_grad", grad_inputs, {one("X@GRAD")},
                                 infer_like({{"X", "X@GRAD"}})));
  table.add(make_schema<NoAttrs>("sum", {many("X")}, {one("Out")}, infer_sum, sum_gradient));
  for (const std::string type : {"reduce_sum", "reduce_mean"}) {
    table.add(make_schema<ReduceAttrs>(type, {one("X")}, {one("Out")}, infer_reduce,
                                       usual_gradient(from_x)));
    table.add(make_schema<ReduceAttrs>(type + "_grad", grad_inputs, {one("X@GRAD")},
                                       infer_like({{"X", "X@GRAD"}})));
  }
  for (const std::string type : {"reduce_max", "reduce_min", "reduce_prod"}) {
    table.add(make_schema<ReduceAttrs>(type, {one("X")}, {one("Out")}, infer_reduce,
                                       usual_gradient({.inputs = {"X"}, .outputs = {"Out"}})));
    table.add(make_schema<ReduceAttrs>(type + "_grad", {one("X"), one("Out"), one("Out@GRAD")},
                                       {one("X@GRAD")}, infer_like({{"X", "X@GRAD"}})));
  }
  for (const char* type : {"reduce_all", "reduce_any"}) {
    table.add(make_schema<ReduceAttrs>(type, {one("X")}, {one("Out")}, infer_reduce_truth));
  }
}

}  // namespace fleet::fluid
