#include "fluid/ops/shape/index_ops.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

bool is_index(DType dtype) {
  return dtype == DType::kInt32 || dtype == DType::kInt64;
}

void require_index(const InferContext& context, const char* slot) {
  const VarDesc& var = context.input(slot);
  context.require(is_index(var.dtype), slot, "int32 or int64", std::string(dtype_name(var.dtype)),
                  str_cat("declare or cast '", var.name, "' as int64"));
}

// Ranges that tensors give: dimensions of unknown size. infer_flags tells those whose numbers the
// attributes have nonetheless.
void set_open_ranges(const InferContext& context, SliceAttrs& attrs, Shape& from) {
  const size_t axes = attrs.axes.size();
  const auto given = [&context](const char* whole, const char* list) {
    return context.has_input(whole) || context.has_input(list);
  };
  if (attrs.starts.empty() && given("StartsTensor", "StartsTensorList")) {
    attrs.starts.assign(axes, 0);
  }
  if (attrs.ends.empty() && given("EndsTensor", "EndsTensorList")) attrs.ends.assign(axes, 1);
  for (size_t i = 0; i < axes; ++i) {
    const int axis = check_axis(context, attrs.axes[i], from.rank(), "Input");
    const bool known = i < attrs.infer_flags.size() && attrs.infer_flags[i] != -1;
    if (!known) from.set(axis, Shape::kUnknown);
  }
}

void infer_slice(InferContext& context) {
  const VarDesc& x = context.input("Input");
  auto attrs = context.attrs<SliceAttrs>();
  Shape from = x.shape;
  const auto axes = static_cast<int64_t>(attrs.axes.size());
  bool given = false;
  for (const auto& [slot, count] :
       {std::pair{"StartsTensor", axes}, std::pair{"EndsTensor", axes},
        std::pair{"StartsTensorList", int64_t{1}}, std::pair{"EndsTensorList", int64_t{1}}}) {
    require_whole_numbers(context, slot, count);
    given = given || context.has_input(slot);
  }
  if (given) set_open_ranges(context, attrs, from);
  const std::string where = str_cat("op 'slice', Input '", x.name, "'");
  const bool rows_stay = std::find(attrs.axes.begin(), attrs.axes.end(), 0) == attrs.axes.end();
  context.set_output("Out", slice_range(from, attrs, where).out, x.dtype, 0,
                     rows_stay ? x.lod_level : 0);
}

void infer_gather(InferContext& context) {
  const VarDesc& x = context.input("X");
  const Shape& index = context.input("Index").shape;
  require_index(context, "Index");
  context.require(x.shape.rank() >= 1, "X", "rows", x.shape.to_string());
  context.require(index.rank() == 1 || (index.rank() == 2 && index[1] == 1), "Index",
                  "[n] or [n, 1]", index.to_string());
  Shape out = x.shape;
  out.set(0, index[0]);
  context.set_output("Out", out, x.dtype);
}

void infer_scatter(InferContext& context) {
  const VarDesc& x = context.input("X");
  const VarDesc& ids = context.input("Ids");
  const VarDesc& updates = context.input("Updates");
  require_index(context, "Ids");
  context.require_dtype("Updates", x.dtype);
  const Shape& index = ids.shape;
  context.require(index.rank() == 1 || (index.rank() == 2 && index[1] == 1), "Ids", "[n] or [n, 1]",
                  index.to_string());
  Shape wanted = x.shape;
  if (wanted.rank() > 0) wanted.set(0, index[0]);
  context.require(updates.shape.compatible(wanted), "Updates", str_cat(wanted, ", one row an id"),
                  updates.shape.to_string());
  context.share("X", "Out");
}

void infer_expand(InferContext& context) {
  const VarDesc& x = context.input("X");
  auto times = context.attrs<ExpandAttrs>().expand_times;
  const bool given = context.has_input("ExpandTimes") || context.has_input("expand_times_tensor");
  const int rank = x.shape.rank();
  require_whole_numbers(context, "ExpandTimes", rank);
  require_whole_numbers(context, "expand_times_tensor", 1);
  // The attribute has the numbers that are known, -1 for the others, or nothing.
  if (given && times.empty()) times.assign(static_cast<size_t>(rank), -1);
  context.require(static_cast<int>(times.size()) == rank, "X",
                  str_cat("expand_times of ", rank, " numbers for ", x.shape),
                  "[" + join(times, ", ") + "]", "give one number a dimension");
  Shape out = x.shape;
  for (int i = 0; i < rank; ++i) {
    const int64_t factor = times[static_cast<size_t>(i)];
    const bool open = given && factor == -1;
    context.require(open || factor >= 1, "X", "expand_times >= 1", str_cat(factor),
                    "give 1 for a dimension that stays");
    out.set(i, open || x.shape[i] < 0 ? Shape::kUnknown : x.shape[i] * factor);
  }
  const bool rows_stay = rank > 0 && times[0] == 1;
  context.set_output("Out", out, x.dtype, 0, rows_stay ? x.lod_level : 0);
}

// sign 1: bigger by the paddings; -1: smaller again.
Shape padded(const InferContext& context, const char* slot, int sign) {
  const Shape& from = context.input(slot).shape;
  const auto paddings = context.attrs<PadAttrs>().paddings;
  context.require(static_cast<int>(paddings.size()) == 2 * from.rank(), slot,
                  str_cat("paddings of ", 2 * from.rank(), " numbers for ", from),
                  "[" + join(paddings, ", ") + "]", "give two numbers a dimension");
  Shape out = from;
  for (int i = 0; i < from.rank(); ++i) {
    const auto at = size_t{2} * static_cast<size_t>(i);
    context.require(paddings[at] >= 0 && paddings[at + 1] >= 0, slot, "paddings >= 0",
                    "[" + join(paddings, ", ") + "]",
                    "slice instead of padding by less than nothing");
    if (from[i] >= 0) out.set(i, from[i] + sign * (paddings[at] + paddings[at + 1]));
  }
  return out;
}

void infer_pad(InferContext& context) {
  context.set_output("Out", padded(context, "X", 1), context.input("X").dtype);
}

void infer_pad_grad(InferContext& context) {
  context.set_output("X@GRAD", padded(context, "Out@GRAD", -1), context.input("Out@GRAD").dtype);
}

void infer_cumsum(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<CumsumAttrs>();
  if (attrs.flatten) {
    context.set_output("Out", Shape{x.shape.numel()}, x.dtype);
    return;
  }
  check_axis(context, attrs.axis, x.shape.rank(), "X");
  context.share("X", "Out");
}

std::vector<Operator> cumsum_gradient(const GradContext& context) {
  auto attrs = parse_attributes<CumsumAttrs>("cumsum", context.forward().attrs);
  attrs.reverse = !attrs.reverse;
  Operator op;
  op.type = "cumsum";
  op.inputs["X"] = context.grad_of_output("Out");
  set_slot(op.outputs, "Out", context.grad_of_input("X"));
  op.attrs = to_attributes(attrs);
  return {op};
}

void infer_one_hot(InferContext& context) {
  const VarDesc& x = context.input("X");
  require_index(context, "X");
  const auto attrs = context.attrs<OneHotAttrs>();
  const bool given = context.has_input("depth_tensor");
  require_whole_numbers(context, "depth_tensor", 1);
  context.require(given || attrs.depth >= 1, "X", "depth >= 1", str_cat(attrs.depth),
                  "give the number of classes");
  Shape out = x.shape;
  const int64_t depth = given ? Shape::kUnknown : attrs.depth;
  if (context.op().type == "one_hot_v2") {
    out.push_back(depth);
  } else {
    context.require(out.rank() >= 1 && out[-1] == 1, "X", "[..., 1]", out.to_string(),
                    "give it a last dimension of 1, or use one_hot_v2");
    out.set(-1, depth);
  }
  context.set_output("Out", out, attrs.dtype, 0, x.lod_level);
}

void infer_hash(InferContext& context) {
  const VarDesc& x = context.input("X");
  require_index(context, "X");
  context.require(x.shape.rank() == 2, "X", "[rows, ids of each]", x.shape.to_string(),
                  "reshape it to a row for each hash");
  const auto attrs = context.attrs<HashAttrs>();
  context.require(attrs.num_hash >= 1, "X", "num_hash >= 1", str_cat(attrs.num_hash),
                  "give how many numbers each row becomes");
  const int64_t most =
      x.dtype == DType::kInt32 ? std::numeric_limits<int32_t>::max() : attrs.mod_by;
  context.require(attrs.mod_by >= 1 && attrs.mod_by <= most, "X",
                  "mod_by >= 1, and a number of X's type", str_cat(attrs.mod_by),
                  "give the number of buckets, and int64 ids where it is large");
  context.set_output("Out", Shape{x.shape[0], attrs.num_hash, 1}, x.dtype, 0, x.lod_level);
}

void infer_arg_max(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<ArgMaxAttrs>();
  const int rank = x.shape.rank();
  const int axis = check_axis(context, static_cast<int>(attrs.axis), rank, "X");
  const DType dtype = attrs.dtype.empty() ? DType::kInt64 : parse_dtype(attrs.dtype);
  context.require(is_index(dtype), "Out", "dtype: int32 or int64", attrs.dtype);
  Shape out;
  for (int i = 0; i < rank; ++i) {
    if (i != axis) out.push_back(x.shape[i]);
    if (i == axis && attrs.keepdims) out.push_back(1);
  }
  if (out.rank() == 0) out.push_back(1);
  context.set_output("Out", out, dtype);
}

void infer_argsort(InferContext& context) {
  const VarDesc& x = context.input("X");
  check_axis(context, context.attrs<ArgsortAttrs>().axis, x.shape.rank(), "X");
  context.share("X", "Out");
  context.set_output("Indices", x.shape, DType::kInt64, 0, x.lod_level);
}

void infer_reverse(InferContext& context) {
  const VarDesc& x = context.input("X");
  for (const int32_t axis : context.attrs<ReverseAttrs>().axis) {
    check_axis(context, axis, x.shape.rank(), "X");
  }
  context.set_output("Out", x.shape, x.dtype);
}

std::vector<Operator> reverse_gradient(const GradContext& context) {
  Operator op;
  op.type = "reverse";
  op.inputs["X"] = context.grad_of_output("Out");
  set_slot(op.outputs, "Out", context.grad_of_input("X"));
  op.attrs = context.forward().attrs;
  return {op};
}

void infer_shape_op(InferContext& context) {
  context.set_output("Out", Shape{context.input("Input").shape.rank()}, DType::kInt32);
}

std::vector<SlotSpec> joined(std::vector<SlotSpec> first, const std::vector<SlotSpec>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

void add_slice(OpTable& table) {
  const std::vector<SlotSpec> tensors = {
      maybe_attribute("StartsTensor"), maybe_attribute("EndsTensor"),
      maybe_attributes("StartsTensorList"), maybe_attributes("EndsTensorList")};
  table.add(make_schema<SliceAttrs>(
      "slice", joined({one("Input")}, tensors), {one("Out")}, infer_slice,
      usual_gradient(
          {.inputs = {"Input", "StartsTensor", "EndsTensor", "StartsTensorList", "EndsTensorList"},
           .wanted = {"Input"}})));
  table.add(make_schema<SliceAttrs>("slice_grad", joined({one("Input"), one("Out@GRAD")}, tensors),
                                    {one("Input@GRAD")},
                                    infer_shape_like({{"Input", "Input@GRAD"}})));
}

void add_row_ops(OpTable& table) {
  table.add(make_schema<GatherAttrs>("gather", {one("X"), one("Index")}, {one("Out")}, infer_gather,
                                     usual_gradient({.inputs = {"X", "Index"}})));
  table.add(make_schema<GatherAttrs>("gather_grad", {one("X"), one("Index"), one("Out@GRAD")},
                                     {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<ScatterAttrs>(
      "scatter", {one("X"), one("Ids"), one("Updates")}, {one("Out")}, infer_scatter,
      usual_gradient({.inputs = {"Ids", "Updates"}, .wanted = {"X", "Updates"}})));
  table.add(make_schema<ScatterAttrs>(
      "scatter_grad", {one("Ids"), one("Updates"), typed(one("Out@GRAD"))},
      {maybe("X@GRAD"), maybe("Updates@GRAD")},
      infer_shape_like({{"Out@GRAD", "X@GRAD"}, {"Updates", "Updates@GRAD"}})));
}

void add_resizing_ops(OpTable& table) {
  const std::vector<SlotSpec> times = {maybe_attribute("ExpandTimes"),
                                       maybe_attributes("expand_times_tensor")};
  table.add(make_schema<ExpandAttrs>(
      "expand", joined({one("X")}, times), {one("Out")}, infer_expand,
      usual_gradient({.inputs = {"X", "ExpandTimes", "expand_times_tensor"}})));
  table.add(make_schema<ExpandAttrs>("expand_grad", joined({one("X"), one("Out@GRAD")}, times),
                                     {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<PadAttrs>("pad", {one("X")}, {one("Out")}, infer_pad,
                                  usual_gradient({.inputs = {}})));
  table.add(make_schema<PadAttrs>("pad_grad", {one("Out@GRAD")}, {one("X@GRAD")}, infer_pad_grad));
  table.add(make_schema<NoAttrs>("shape", {one("Input")}, {one("Out")}, infer_shape_op));
}

}  // namespace

SliceRange slice_range(const Shape& from, const SliceAttrs& attrs, std::string_view where) {
  const auto fail = [&](std::string_view what, std::string expected, const std::string& got) {
    throw_error(ErrorCode::kShapeMismatch, {.what = std::string(what),
                                            .where = std::string(where),
                                            .expected = std::move(expected),
                                            .got = str_cat(got, " for ", from),
                                            .fix = "correct axes, starts and ends"});
  };
  if (attrs.starts.size() != attrs.axes.size() || attrs.ends.size() != attrs.axes.size()) {
    fail("a slice needs a start and an end for each axis", str_cat(attrs.axes.size(), " of each"),
         str_cat(attrs.starts.size(), " starts, ", attrs.ends.size(), " ends"));
  }
  const int rank = from.rank();
  SliceRange range = {
      .first = std::vector<int64_t>(static_cast<size_t>(rank), 0), .length = from, .out = {}};
  for (size_t i = 0; i < attrs.axes.size(); ++i) {
    const int axis = attrs.axes[i] < 0 ? attrs.axes[i] + rank : attrs.axes[i];
    if (axis < 0 || axis >= rank) {
      fail("an axis is outside", str_cat("axes in [", -rank, ", ", rank, ")"),
           str_cat("axis ", attrs.axes[i]));
    }
    const int64_t whole = from[axis];
    if (whole < 0) continue;
    const auto place = [whole](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + whole : at, 0, whole);
    };
    const int64_t first = place(attrs.starts[i]);
    const int64_t last = place(attrs.ends[i]);
    if (first >= last && whole > 0) {
      fail("a slice takes nothing", "start < end",
           str_cat("[", attrs.starts[i], ", ", attrs.ends[i], ") along axis ", axis));
    }
    range.first[static_cast<size_t>(axis)] = first;
    range.length.set(axis, std::max<int64_t>(last - first, 0));
  }
  std::vector<bool> dropped(static_cast<size_t>(rank), false);
  for (const int32_t axis : attrs.decrease_axis) {
    const int at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank || (range.length[at] != 1 && range.length[at] >= 0)) {
      fail("decrease_axis leaves out dimensions of size 1 only", "an axis that the slice cuts to 1",
           str_cat("axis ", axis));
    }
    dropped[static_cast<size_t>(at)] = true;
  }
  for (int i = 0; i < rank; ++i) {
    if (!dropped[static_cast<size_t>(i)]) range.out.push_back(range.length[i]);
  }
  if (range.out.rank() == 0) range.out.push_back(1);
  return range;
}

void add_index_ops(OpTable& table) {
  add_slice(table);
  add_row_ops(table);
  add_resizing_ops(table);
  table.add(
      make_schema<CumsumAttrs>("cumsum", {one("X")}, {one("Out")}, infer_cumsum, cumsum_gradient));
  for (const char* type : {"one_hot", "one_hot_v2"}) {
    table.add(make_schema<OneHotAttrs>(type, {one("X"), maybe_attribute("depth_tensor")},
                                       {one("Out")}, infer_one_hot));
  }
  table.add(make_schema<HashAttrs>("hash", {one("X")}, {one("Out")}, infer_hash));
  for (const char* type : {"arg_max", "arg_min"}) {
    table.add(make_schema<ArgMaxAttrs>(type, {one("X")}, {one("Out")}, infer_arg_max));
  }
  table.add(make_schema<ArgsortAttrs>("argsort", {one("X")}, {one("Out"), one("Indices")},
                                      infer_argsort,
                                      usual_gradient({.inputs = {"X"}, .outputs = {"Indices"}})));
  table.add(make_schema<ArgsortAttrs>("argsort_grad", {one("X"), one("Indices"), one("Out@GRAD")},
                                      {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<ReverseAttrs>("reverse", {one("X")}, {one("Out")}, infer_reverse,
                                      reverse_gradient));
}

}  // namespace fleet::fluid
