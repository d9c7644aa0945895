#include "fluid/ops/shape/shape_ops.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_concat(InferContext& context) {
  const VarDesc& first = context.input("X");
  const int rank = first.shape.rank();
  context.require_dtype("X", first.dtype);
  require_whole_numbers(context, "AxisTensor", 1);
  if (context.has_input("AxisTensor")) {
    context.set_output("Out", unknown_shape(rank), first.dtype);
    return;
  }
  const int axis = check_axis(context, context.attrs<ConcatAttrs>().axis, rank, "X");
  Shape out = first.shape;
  for (size_t i = 1; i < context.input_count("X"); ++i) {
    const VarDesc& x = context.input("X", i);
    Shape wanted = out;
    if (x.shape.rank() == rank) wanted.set(axis, x.shape[axis]);
    context.require(x.shape.compatible(wanted), "X", str_cat(out, ", except for dimension ", axis),
                    str_cat(x.shape, " ('", x.name, "')"));
    for (int d = 0; d < rank; ++d) {
      if (d == axis) {
        const bool known = out[d] >= 0 && x.shape[d] >= 0;
        out.set(d, known ? out[d] + x.shape[d] : Shape::kUnknown);
      } else if (out[d] < 0) {
        out.set(d, x.shape[d]);
      }
    }
  }
  context.set_output("Out", out, first.dtype, 0, first.lod_level);
}

// Sizes of the parts along the axis; unknown ones are -1.
std::vector<int64_t> part_sizes(const InferContext& context, const SplitAttrs& attrs,
                                int64_t whole) {
  const size_t parts = context.output_count("Out");
  if (attrs.sections.empty()) {
    context.require(attrs.num > 0 && static_cast<size_t>(attrs.num) == parts, "Out",
                    str_cat("num = the ", parts, " outputs"), str_cat("num ", attrs.num));
    context.require(whole < 0 || whole % attrs.num == 0, "X",
                    str_cat("a dimension that ", attrs.num, " equal parts fit"), str_cat(whole),
                    "give the size of each part, or another number of parts");
    return std::vector<int64_t>(parts, whole < 0 ? whole : whole / attrs.num);
  }
  std::vector<int64_t> sizes(attrs.sections.begin(), attrs.sections.end());
  context.require(sizes.size() == parts, "Out", str_cat(parts, " sections"), str_cat(sizes.size()));
  // Each that tensors give is -1.
  if (context.has_input("SectionsTensorList")) return sizes;
  int64_t given = 0;
  for (int64_t size : sizes) given += std::max<int64_t>(size, 0);
  const auto unknown = std::count(sizes.begin(), sizes.end(), -1);
  const bool fits =
      unknown == 0 ? (whole < 0 || given == whole) : unknown == 1 && (whole < 0 || given <= whole);
  context.require(fits, "X", str_cat("sections that sum to ", whole, ", at most one -1"),
                  join(attrs.sections, ", "), "correct the sections, or leave one of them -1");
  if (whole >= 0) std::replace(sizes.begin(), sizes.end(), int64_t{-1}, whole - given);
  return sizes;
}

void infer_split(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<SplitAttrs>();
  require_whole_numbers(context, "AxisTensor", 1);
  require_whole_numbers(context, "SectionsTensorList", 1);
  if (context.has_input("AxisTensor")) {
    for (size_t i = 0; i < context.output_count("Out"); ++i) {
      context.set_output("Out", unknown_shape(x.shape.rank()), x.dtype, i);
    }
    return;
  }
  const int axis = check_axis(context, attrs.axis, x.shape.rank(), "X");
  const auto sizes = part_sizes(context, attrs, x.shape[axis]);
  for (size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = x.shape;
    shape.set(axis, sizes[i]);
    context.set_output("Out", shape, x.dtype, i, axis == 0 ? 0 : x.lod_level);
  }
}

std::vector<Operator> split_gradient(const GradContext& context) {
  Operator op;
  op.type = "concat";
  op.inputs["X"] = context.grad_of_output("Out");
  set_slot(op.inputs, "AxisTensor", context.input("AxisTensor"));
  set_slot(op.outputs, "Out", context.grad_of_input("X"));
  op.attrs = context.forward().attrs;
  return {op};
}

void set_xshape(InferContext& context) {
  const VarDesc& x = context.input("X");
  Shape carried{0};
  for (int64_t dim : x.shape) carried.push_back(dim);
  context.set_output("XShape", carried, x.dtype, 0, x.lod_level);
}

// The shape that tensors give, as far as the attribute has it: 0 keeps a dimension, -1 is unknown.
Shape partly_known_shape(const InferContext& context, const std::vector<int32_t>& known) {
  const auto list = static_cast<int64_t>(context.input_count("ShapeTensor"));
  if (known.empty()) return list > 0 ? unknown_shape(list) : unknown_shape(context, "Shape");
  const VarDesc& x = context.input("X");
  Shape out;
  for (size_t i = 0; i < known.size(); ++i) {
    const int at = static_cast<int>(i);
    context.require(known[i] != 0 || at < x.shape.rank(), "X",
                    str_cat("more than ", at, " dimensions: shape keeps one by 0"),
                    x.shape.to_string());
    out.push_back(known[i] == 0 ? x.shape[at] : known[i]);
  }
  return out;
}

void infer_reshape2(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<Reshape2Attrs>();
  const std::string where = str_cat("op '", context.op().type, "', X '", x.name, "'");
  const bool given = context.has_input("Shape") || context.has_input("ShapeTensor");
  require_whole_numbers(context, "Shape", -1);
  require_whole_numbers(context, "ShapeTensor", 1);
  const Shape out = given ? partly_known_shape(context, attrs.shape)
                          : reshaped_shape(x.shape, attrs.shape, where);
  const bool same_rows = out.rank() > 0 && x.shape.rank() > 0 && out[0] == x.shape[0];
  context.set_output("Out", out, x.dtype, 0, same_rows ? x.lod_level : 0);
  set_xshape(context);
}

// For reshape2_grad and transpose2_grad: XShape is 0 and then X's shape.
void infer_from_xshape(InferContext& context) {
  const VarDesc& carried = context.input("XShape");
  context.require(carried.shape.rank() >= 1, "XShape", "a 0 and X's shape",
                  carried.shape.to_string());
  context.set_output("X@GRAD", Shape(carried.shape.dims().subspan(1)), carried.dtype, 0,
                     carried.lod_level);
}

void infer_transpose2(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto axis = context.attrs<Transpose2Attrs>().axis;
  auto sorted = axis;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int32_t> all(static_cast<size_t>(x.shape.rank()));
  std::iota(all.begin(), all.end(), 0);
  context.require(sorted == all, "X", str_cat("axis: a permutation of 0..", x.shape.rank() - 1),
                  "[" + join(axis, ", ") + "]", "name each dimension of X once");
  Shape out;
  for (int32_t from : axis) out.push_back(x.shape[from]);
  context.set_output("Out", out, x.dtype);
  set_xshape(context);
}

using Relabel = Shape (*)(const InferContext& context, const Shape& from, std::string_view where);

// Same elements, other dimensions.
template <Relabel relabel>
void infer_relabelled(InferContext& context) {
  const VarDesc& x = context.input("X");
  const std::string where = str_cat("op '", context.op().type, "', X '", x.name, "'");
  const Shape out = relabel(context, x.shape, where);
  const bool same_rows = out.rank() > 0 && x.shape.rank() > 0 && out[0] == x.shape[0];
  context.set_output("Out", out, x.dtype, 0, same_rows ? x.lod_level : 0);
  set_xshape(context);
}

Shape squeezed(const InferContext& context, const Shape& from, std::string_view where) {
  return squeezed_shape(from, context.attrs<AxesAttrs>().axes, where);
}
Shape unsqueezed(const InferContext& context, const Shape& from, std::string_view where) {
  require_whole_numbers(context, "AxesTensor", -1);
  require_whole_numbers(context, "AxesTensorList", 1);
  if (const size_t count = context.input_count("AxesTensorList"); count != 0) {
    return unknown_shape(from.rank() + static_cast<int64_t>(count));
  }
  if (context.has_input("AxesTensor")) {
    return unknown_shape(context, "AxesTensor", from.rank());
  }
  return unsqueezed_shape(from, context.attrs<AxesAttrs>().axes, where);
}
Shape flattened(const InferContext& context, const Shape& from, std::string_view where) {
  return flattened_shape(from, context.attrs<FlattenAttrs>().axis, where);
}

void infer_stack(InferContext& context) {
  const VarDesc& first = context.input("X");
  context.require_dtype("X", first.dtype);
  const int rank = first.shape.rank() + 1;
  const int axis = check_axis(context, context.attrs<StackAttrs>().axis, rank, "X");
  for (size_t i = 1; i < context.input_count("X"); ++i) {
    const VarDesc& x = context.input("X", i);
    context.require(x.shape.compatible(first.shape), "X", str_cat("equal shapes, ", first.shape),
                    str_cat(x.shape, " ('", x.name, "')"));
  }
  std::vector<int64_t> dims = first.shape.to_vector();
  dims.insert(dims.begin() + axis, static_cast<int64_t>(context.input_count("X")));
  context.set_output("Y", Shape(dims), first.dtype);
}

// Without dimension `axis`.
Shape without_axis(const Shape& shape, int axis) {
  std::vector<int64_t> dims = shape.to_vector();
  dims.erase(dims.begin() + axis);
  return Shape(dims);
}

void infer_stack_grad(InferContext& context) {
  const VarDesc& grad = context.input("Y@GRAD");
  const int axis =
      check_axis(context, context.attrs<StackAttrs>().axis, grad.shape.rank(), "Y@GRAD");
  for (size_t i = 0; i < context.output_count("X@GRAD"); ++i) {
    context.set_output("X@GRAD", without_axis(grad.shape, axis), grad.dtype, i);
  }
}

void infer_unstack(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<UnstackAttrs>();
  const int axis = check_axis(context, attrs.axis, x.shape.rank(), "X");
  const auto parts = static_cast<int64_t>(context.output_count("Y"));
  context.require(x.shape[axis] < 0 || x.shape[axis] == parts, "X",
                  str_cat(parts, " along axis ", axis, ", one for each output"),
                  x.shape.to_string(), "give the number that the axis has");
  context.require(attrs.num == 0 || attrs.num == parts, "X",
                  str_cat("num = the ", parts, " outputs"), str_cat(attrs.num));
  for (size_t i = 0; i < context.output_count("Y"); ++i) {
    context.set_output("Y", without_axis(x.shape, axis), x.dtype, i);
  }
}

void infer_unstack_grad(InferContext& context) {
  const VarDesc& part = context.input("Y@GRAD");
  const int rank = part.shape.rank() + 1;
  const int axis = check_axis(context, context.attrs<UnstackAttrs>().axis, rank, "Y@GRAD");
  std::vector<int64_t> dims = part.shape.to_vector();
  dims.insert(dims.begin() + axis, static_cast<int64_t>(context.input_count("Y@GRAD")));
  context.set_output("X@GRAD", Shape(dims), part.dtype);
}

void infer_cast(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<CastAttrs>();
  context.require_dtype("X", attrs.in_dtype);
  context.set_output("Out", x.shape, attrs.out_dtype, 0, x.lod_level);
}

std::vector<Operator> cast_gradient(const GradContext& context) {
  auto attrs = parse_attributes<CastAttrs>("cast", context.forward().attrs);
  std::swap(attrs.in_dtype, attrs.out_dtype);
  Operator op;
  op.type = "cast";
  op.inputs["X"] = context.grad_of_output("Out");
  set_slot(op.outputs, "Out", context.grad_of_input("X"));
  op.attrs = to_attributes(attrs);
  return {op};
}

std::vector<Operator> assign_gradient(const GradContext& context) {
  Operator op;
  op.type = "assign";
  op.inputs["X"] = context.grad_of_output("Out");
  set_slot(op.outputs, "Out", context.grad_of_input("X"));
  return {op};
}

[[noreturn]] void fail_axes(std::string_view where, const Shape& from, std::string expected,
                            const std::string& got) {
  throw_error(ErrorCode::kShapeMismatch, {.what = "the axes do not fit",
                                          .where = std::string(where),
                                          .expected = std::move(expected),
                                          .got = str_cat(got, " for ", from),
                                          .fix = "correct the axes"});
}

void add_relabelling_ops(OpTable& table) {
  const GradientFunction gradient = usual_gradient({.inputs = {}, .outputs = {"XShape"}});
  const std::vector<SlotSpec> outs = {one("Out"), one("XShape")};
  const std::vector<SlotSpec> grad_ins = {one("XShape"), typed(one("Out@GRAD"))};
  table.add(
      make_schema<AxesAttrs>("squeeze2", {one("X")}, outs, infer_relabelled<squeezed>, gradient));
  table.add(make_schema<AxesAttrs>(
      "unsqueeze2", {one("X"), maybe_attribute("AxesTensor"), maybe_attributes("AxesTensorList")},
      outs, infer_relabelled<unsqueezed>, gradient));
  table.add(make_schema<FlattenAttrs>("flatten2", {one("X")}, outs, infer_relabelled<flattened>,
                                      gradient));
  for (const char* type : {"squeeze2_grad", "unsqueeze2_grad"}) {
    table.add(make_schema<AxesAttrs>(type, grad_ins, {one("X@GRAD")}, infer_from_xshape));
  }
  table.add(
      make_schema<FlattenAttrs>("flatten2_grad", grad_ins, {one("X@GRAD")}, infer_from_xshape));
}

// The forms from before XShape: their gradients read X.
void add_old_forms(OpTable& table) {
  const GradientFunction gradient = usual_gradient({.inputs = {"X"}});
  const std::vector<SlotSpec> grad_ins = {one("X"), one("Out@GRAD")};
  const auto infer_grad = infer_like({{"X", "X@GRAD"}});
  table.add(
      make_schema<Reshape2Attrs>("reshape", {one("X")}, {one("Out")}, infer_reshape2, gradient));
  table.add(make_schema<Transpose2Attrs>("transpose", {one("X")}, {one("Out")}, infer_transpose2,
                                         gradient));
  table.add(make_schema<AxesAttrs>("squeeze", {one("X")}, {one("Out")}, infer_relabelled<squeezed>,
                                   gradient));
  table.add(make_schema<AxesAttrs>("unsqueeze", {one("X")}, {one("Out")},
                                   infer_relabelled<unsqueezed>, gradient));
  table.add(make_schema<FlattenAttrs>("flatten", {one("X")}, {one("Out")},
                                      infer_relabelled<flattened>, gradient));
  table.add(make_schema<Reshape2Attrs>("reshape_grad", grad_ins, {one("X@GRAD")}, infer_grad));
  table.add(make_schema<Transpose2Attrs>("transpose_grad", grad_ins, {one("X@GRAD")}, infer_grad));
  table.add(make_schema<AxesAttrs>("squeeze_grad", grad_ins, {one("X@GRAD")}, infer_grad));
  table.add(make_schema<AxesAttrs>("unsqueeze_grad", grad_ins, {one("X@GRAD")}, infer_grad));
  table.add(make_schema<FlattenAttrs>("flatten_grad", grad_ins, {one("X@GRAD")}, infer_grad));
}

void add_stack_ops(OpTable& table) {
  table.add(make_schema<StackAttrs>("stack", {many("X")}, {one("Y")}, infer_stack,
                                    usual_gradient({.inputs = {}, .incoming = {"Y"}})));
  table.add(
      make_schema<StackAttrs>("stack_grad", {one("Y@GRAD")}, {many("X@GRAD")}, infer_stack_grad));
  table.add(make_schema<UnstackAttrs>("unstack", {one("X")}, {many("Y")}, infer_unstack,
                                      usual_gradient({.inputs = {}, .incoming = {"Y"}})));
  table.add(make_schema<UnstackAttrs>("unstack_grad", {many("Y@GRAD")}, {one("X@GRAD")},
                                      infer_unstack_grad));
}

}  // namespace

Shape squeezed_shape(const Shape& from, const std::vector<int32_t>& axes, std::string_view where) {
  const int rank = from.rank();
  std::vector<bool> gone(static_cast<size_t>(rank), false);
  for (const int32_t axis : axes) {
    const int at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank)
      fail_axes(where, from, str_cat("axes in [", -rank, ", ", rank, ")"), str_cat("axis ", axis));
    if (from[at] != 1 && from[at] >= 0) {
      fail_axes(where, from, "dimensions of 1 at the axes", str_cat("axis ", axis));
    }
    gone[static_cast<size_t>(at)] = true;
  }
  Shape out;
  for (int i = 0; i < rank; ++i) {
    const bool goes = axes.empty() ? from[i] == 1 : gone[static_cast<size_t>(i)];
    if (!goes) out.push_back(from[i]);
  }
  return out;
}

Shape unsqueezed_shape(const Shape& from, const std::vector<int32_t>& axes,
                       std::string_view where) {
  std::vector<int64_t> dims = from.to_vector();
  for (const int32_t axis : axes) {
    const int rank = static_cast<int>(dims.size()) + 1;
    const int at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank || rank > Shape::kMaxRank) {
      fail_axes(
          where, from,
          str_cat("axes in [", -rank, ", ", rank, ") and at most ", Shape::kMaxRank, " dimensions"),
          str_cat("axis ", axis));
    }
    dims.insert(dims.begin() + at, 1);
  }
  return Shape(dims);
}

int64_t flat_size(const Shape& shape, int begin, int end) {
  const auto dims =
      shape.dims().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  const auto unknown = std::count_if(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; });
  if (unknown != 1) return shape.numel(begin, end);
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

Shape flattened_shape(const Shape& from, int32_t axis, std::string_view where) {
  const int rank = from.rank();
  if (axis < 0 || axis > rank) {
    fail_axes(where, from, str_cat("axis in [0, ", rank, "]"), str_cat("axis ", axis));
  }
  return Shape{flat_size(from, 0, axis), flat_size(from, axis, rank)};
}

Shape reshaped_shape(const Shape& from, const std::vector<int32_t>& wanted,
                     std::string_view where) {
  const auto fail = [&](std::string_view what) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = std::string(what),
                 .where = std::string(where),
                 .expected = "as many elements as before; one -1 at most; 0 keeps a dimension",
                 .got = str_cat(from, " to [", join(wanted, ", "), "]"),
                 .fix = "correct the shape"});
  };
  Shape out;
  int open = -1;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const int at = static_cast<int>(i);
    if (wanted[i] < -1) fail("a dimension below -1");
    if (wanted[i] == 0 && at >= from.rank()) fail("0 keeps a dimension that is not there");
    if (wanted[i] == -1 && open >= 0) fail("two dimensions are -1");
    if (wanted[i] == -1) open = at;
    out.push_back(wanted[i] == 0 ? from[at] : wanted[i]);
  }
  if (!from.known()) return out;
  const int64_t whole = from.numel();
  if (open >= 0) {
    out.set(open, 1);
    const int64_t rest = out.numel();
    if (rest == 0 || whole % rest != 0) fail("the -1 has no whole value");
    out.set(open, whole / rest);
  }
  if (out.numel() != whole) fail("the number of elements changes");
  return out;
}

Shape unknown_shape(int64_t rank) {
  return Shape(std::vector<int64_t>(static_cast<size_t>(rank), Shape::kUnknown));
}

Shape unknown_shape(const InferContext& context, std::string_view slot, int64_t more) {
  const Shape& numbers = context.input(slot).shape;
  const int64_t rank = numbers.known() ? numbers.numel() + more : -1;
  context.require(rank >= 0 && rank <= Shape::kMaxRank, slot,
                  str_cat("a known number of dimensions, at most ", Shape::kMaxRank),
                  numbers.to_string());
  return unknown_shape(rank);
}

void add_shape_ops(OpTable& table) {
  table.add(make_schema<ConcatAttrs>("concat", {many("X"), maybe_attribute("AxisTensor")},
                                     {one("Out")}, infer_concat,
                                     usual_gradient({.inputs = {"X", "AxisTensor"}})));
  table.add(make_schema<ConcatAttrs>("concat_grad",
                                     {many("X"), maybe_attribute("AxisTensor"), one("Out@GRAD")},
                                     {many("X@GRAD")}, infer_like({{"X", "X@GRAD"}})));
  table.add(make_schema<SplitAttrs>(
      "split", {one("X"), maybe_attribute("AxisTensor"), maybe_attributes("SectionsTensorList")},
      {many("Out")}, infer_split, split_gradient));
  table.add(make_schema<Reshape2Attrs>(
      "reshape2", {one("X"), maybe_attribute("Shape"), maybe_attributes("ShapeTensor")},
      {one("Out"), one("XShape")}, infer_reshape2,
      usual_gradient({.inputs = {}, .outputs = {"XShape"}})));
  table.add(make_schema<Reshape2Attrs>("reshape2_grad", {one("XShape"), typed(one("Out@GRAD"))},
                                       {one("X@GRAD")}, infer_from_xshape));
  table.add(make_schema<Transpose2Attrs>("transpose2", {one("X")}, {one("Out"), one("XShape")},
                                         infer_transpose2,
                                         usual_gradient({.inputs = {}, .outputs = {"XShape"}})));
  table.add(make_schema<Transpose2Attrs>("transpose2_grad", {one("XShape"), typed(one("Out@GRAD"))},
                                         {one("X@GRAD")}, infer_from_xshape));
  table.add(make_schema<CastAttrs>("cast", {one("X")}, {one("Out")}, infer_cast, cast_gradient));
  table.add(make_schema<NoAttrs>("assign", {one("X")}, {one("Out")}, infer_like({{"X", "Out"}}),
                                 assign_gradient));
  add_relabelling_ops(table);
  add_old_forms(table);
  add_stack_ops(table);
}

}  // namespace fleet::fluid
