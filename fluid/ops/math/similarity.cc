#include "fluid/ops/math/similarity.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_norm(InferContext& context) {
  const VarDesc& x = context.input("X");
  const int axis = check_axis(context, context.attrs<NormAttrs>().axis, x.shape.rank(), "X");
  Shape norm = x.shape;
  norm.set(axis, 1);
  context.share("X", "Out");
  context.set_output("Norm", norm, x.dtype);
}

void infer_cos_sim(InferContext& context) {
  const VarDesc& x = context.input("X");
  const VarDesc& y = context.input("Y");
  context.require_dtype("Y", x.dtype);
  const int rank = x.shape.rank();
  context.require(rank >= 2, "X", "[n, ...]", x.shape.to_string());
  Shape wanted = x.shape;
  if (y.shape.rank() == rank) wanted.set(0, y.shape[0]);
  const bool rows = y.shape.rank() == rank && (y.shape[0] == 1 || y.shape[0] < 0 ||
                                               x.shape[0] < 0 || y.shape[0] == x.shape[0]);
  context.require(rows && y.shape.compatible(wanted), "Y", str_cat(x.shape, ", or one row of it"),
                  y.shape.to_string());
  context.set_output("Out", Shape{x.shape[0], 1}, x.dtype, 0, x.lod_level);
  context.set_output("XNorm", Shape{x.shape[0], 1}, x.dtype);
  context.set_output("YNorm", Shape{y.shape[0], 1}, x.dtype);
}

}  // namespace

void add_similarity_ops(OpTable& table) {
  table.add(make_schema<NormAttrs>("norm", {one("X")}, {one("Norm"), one("Out")}, infer_norm,
                                   usual_gradient({.inputs = {"X"}, .outputs = {"Norm"}})));
  table.add(make_schema<NormAttrs>("norm_grad", {one("X"), one("Norm"), one("Out@GRAD")},
                                   {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<NoAttrs>(
      "cos_sim", {one("X"), one("Y")}, {one("Out"), one("XNorm"), one("YNorm")}, infer_cos_sim,
      usual_gradient(
          {.inputs = {"X", "Y"}, .outputs = {"Out", "XNorm", "YNorm"}, .wanted = {"X", "Y"}})));
  table.add(make_schema<NoAttrs>(
      "cos_sim_grad", {one("X"), one("Y"), one("Out"), one("XNorm"), one("YNorm"), one("Out@GRAD")},
      {maybe("X@GRAD"), maybe("Y@GRAD")}, infer_shape_like({{"X", "X@GRAD"}, {"Y", "Y@GRAD"}})));
}

}  // namespace fleet::fluid
