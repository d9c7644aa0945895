// Ops that move or relabel elements, of any type.
#include "fluid/ops/shape/shape_ops.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/shape/mover.h"
#include "fluid/ops/distributed/comm.h"

namespace fleet::fluid {
namespace {

int positive_axis(int axis, const Shape& shape) {
  return axis < 0 ? axis + shape.rank() : axis;
}

int checked_axis(const PrepareContext& context, int axis) {
  const Shape& shape = context.in("X").shape;
  const int at = positive_axis(axis, shape);
  context.require(at >= 0 && at < shape.rank(), "X",
                  str_cat("an axis in [", -shape.rank(), ", ", shape.rank(), ")"), str_cat(axis));
  return at;
}

// Parts of a whole along one axis: in every outer row, part i is a run of elements.
struct Parts {
  int64_t rows = 1;
  std::vector<int64_t> runs;  // elements of one run
  int64_t total = 0;          // of one outer row of the whole
  size_t word = 1;            // bytes of an element

  void add(const Shape& part, int axis, DType dtype) {
    rows = part.numel(0, axis);
    runs.push_back(part.numel(axis, part.rank()));
    total += runs.back();
    word = dtype_size(dtype);
  }
  int64_t elements() const { return rows * total; }
  // Of part i: from its own memory into the whole, or out of the whole.
  StridedWalk into_whole(size_t i) const { return walk(runs[i], runs[i], total); }
  StridedWalk out_of_whole(size_t i) const { return walk(runs[i], total, runs[i]); }
  // Where the runs of the part behind those of `before` elements begin.
  int64_t offset(int64_t before) const { return before * static_cast<int64_t>(word); }

 private:
  StridedWalk walk(int64_t run, int64_t from, int64_t to) const {
    StridedWalk walk;
    walk.add(rows, from, to);
    walk.add(run, 1, 1);
    return walk;
  }
};

// Puts the inputs from `first` on into the whole.
std::unique_ptr<Prepared> join_parts(const Mover& mover, int first, int out, Parts parts) {
  std::vector<StridedWalk> walks;
  for (size_t i = 0; i < parts.runs.size(); ++i) walks.push_back(parts.into_whole(i));
  return make_prepared([=, parts = std::move(parts), walks = std::move(walks),
                        moves = std::vector<Move>()](const KernelContext& c) mutable {
    std::byte* to = c.output(out).raw();
    int64_t before = 0;
    moves.clear();
    for (size_t i = 0; i < parts.runs.size(); ++i) {
      const std::byte* from = c.input(first + static_cast<int>(i)).raw();
      std::byte* own = to + parts.offset(before);
      // Slices that were received into the whole are there already.
      const bool in_place = parts.rows == 1 && from == own;
      if (!in_place) moves.push_back({&walks[i], from, own});
      before += parts.runs[i];
    }
    mover.copy_moves(c, moves, parts.word);
  });
}

// Copies the runs of `whole` out to the outputs; an output nobody wants is -1.
std::unique_ptr<Prepared> take_apart(const Mover& mover, int whole, std::vector<int> outs,
                                     Parts parts) {
  std::vector<StridedWalk> walks;
  for (size_t i = 0; i < parts.runs.size(); ++i) walks.push_back(parts.out_of_whole(i));
  return make_prepared([=, outs = std::move(outs), parts = std::move(parts),
                        walks = std::move(walks),
                        moves = std::vector<Move>()](const KernelContext& c) mutable {
    const std::byte* from = c.input(whole).raw();
    int64_t before = 0;
    moves.clear();
    for (size_t i = 0; i < outs.size(); ++i) {
      if (outs[i] >= 0) {
        moves.push_back({&walks[i], from + parts.offset(before), c.output(outs[i]).raw()});
      }
      before += parts.runs[i];
    }
    mover.copy_moves(c, moves, parts.word);
  });
}

std::unique_ptr<Prepared> prepare_concat(const Mover& mover, PrepareContext& context) {
  const ValueSpec& first = context.in("X");
  const int axis = checked_axis(context, context.attrs<ConcatAttrs>().axis);
  Shape shape = first.shape;
  Parts parts;
  int64_t along = 0;
  const size_t count = context.input_count("X");
  for (size_t i = 0; i < count; ++i) {
    const ValueSpec& x = context.in("X", i);
    Shape wanted = first.shape;
    if (x.shape.rank() == wanted.rank()) wanted.set(axis, x.shape[axis]);
    context.require(x.dtype == first.dtype && x.shape == wanted, "X",
                    str_cat(dtype_name(first.dtype), first.shape, " but for dimension ", axis),
                    str_cat(dtype_name(x.dtype), x.shape));
    along += x.shape[axis];
    parts.add(x.shape, axis, x.dtype);
  }
  shape.set(axis, along);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, first.dtype);
  return join_parts(mover, x, out, std::move(parts));
}

std::unique_ptr<Prepared> prepare_concat_grad(const Mover& mover, PrepareContext& context) {
  const int axis = checked_axis(context, context.attrs<ConcatAttrs>().axis);
  Parts parts;
  std::vector<int> outs;
  for (size_t i = 0; i < context.input_count("X"); ++i) {
    const ValueSpec& x = context.in("X", i);
    parts.add(x.shape, axis, x.dtype);
    outs.push_back(context.set_output("X@GRAD", x.shape, x.dtype, i));
  }
  context.require(context.in("Out@GRAD").shape.numel() == parts.elements(), "Out@GRAD",
                  "as many elements as all of X", context.in("Out@GRAD").shape.to_string());
  return take_apart(mover, context.input("Out@GRAD"), std::move(outs), std::move(parts));
}

// The sections of a split; the one that is -1 takes what is left.
std::vector<int64_t> sections_of(const PrepareContext& context, const std::vector<int64_t>& given,
                                 int64_t num, int64_t whole) {
  const auto outputs = static_cast<int64_t>(context.output_count("Out"));
  if (given.empty()) {
    const int64_t count = num > 0 ? num : outputs;
    context.require(count == outputs && whole % count == 0, "X",
                    str_cat("a dimension that ", outputs, " equal parts fit"), str_cat(whole));
    return std::vector<int64_t>(static_cast<size_t>(count), whole / count);
  }
  std::vector<int64_t> sizes = given;
  int64_t known = 0;
  for (const int64_t size : sizes) known += std::max<int64_t>(size, 0);
  std::replace(sizes.begin(), sizes.end(), int64_t{-1}, whole - known);
  int64_t sum = 0;
  for (const int64_t size : sizes) sum += size;
  const bool counts = std::all_of(sizes.begin(), sizes.end(), [](int64_t n) { return n >= 0; });
  context.require(counts && sum == whole && static_cast<int64_t>(sizes.size()) == outputs, "X",
                  str_cat("sections that add up to ", whole), "[" + join(given, ", ") + "]");
  return sizes;
}

std::unique_ptr<Prepared> split_along(const Mover& mover, PrepareContext& context, int axis,
                                      const std::vector<int64_t>& sizes) {
  const ValueSpec& x = context.in("X");
  Parts parts;
  std::vector<int> outs;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = x.shape;
    shape.set(axis, sizes[i]);
    parts.add(shape, axis, x.dtype);
    outs.push_back(context.set_output("Out", shape, x.dtype, i));
  }
  return take_apart(mover, context.input("X"), std::move(outs), std::move(parts));
}

std::unique_ptr<Prepared> prepare_split(const Mover& mover, PrepareContext& context) {
  const auto attrs = context.attrs<SplitAttrs>();
  const Shape& shape = context.in("X").shape;
  const int axis = checked_axis(context, attrs.axis);
  const std::vector<int64_t> given(attrs.sections.begin(), attrs.sections.end());
  return split_along(mover, context, axis, sections_of(context, given, attrs.num, shape[axis]));
}

// Runs of rows, as views of X; the plan lets nothing else use X's memory (OpSchema::makes_views).
std::unique_ptr<Prepared> prepare_split_byref(PrepareContext& context) {
  const auto attrs = context.attrs<SplitByrefAttrs>();
  const Shape& shape = context.in("X").shape;
  const auto sizes = sections_of(context, attrs.sections, attrs.num, shape[0]);
  const int x = context.input("X");
  std::vector<int> outs;
  for (size_t i = 0; i < sizes.size(); ++i) outs.push_back(context.own_output("Out", i));
  return make_prepared([=](const KernelContext& c) {
    int64_t row = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      c.output_value(outs[i]) = c.input(x).rows(row, row + sizes[i]);
      row += sizes[i];
    }
  });
}

std::unique_ptr<Prepared> copy_as(const Mover& mover, PrepareContext& context, const char* from,
                                  const char* to, const Shape& shape) {
  const int x = context.input(from);
  const int out = context.set_output(to, shape, context.in(from).dtype);
  return make_prepared(
      [=](const KernelContext& c) { mover.copy_all(c, c.input(x), c.output(out)); });
}

void set_xshape(PrepareContext& context) {
  const ValueSpec& x = context.in("X");
  Shape carried{0};
  for (const int64_t dim : x.shape) carried.push_back(dim);
  context.set_output("XShape", carried, x.dtype);
}

std::string where_of(const PrepareContext& context) {
  return str_cat("op '", context.op().type, "', X '", join(context.op().input("X"), ", "), "'");
}

std::unique_ptr<Prepared> prepare_reshape2(const Mover& mover, PrepareContext& context) {
  const Shape shape = reshaped_shape(context.in("X").shape, context.attrs<Reshape2Attrs>().shape,
                                     where_of(context));
  set_xshape(context);
  return copy_as(mover, context, "X", "Out", shape);
}

Shape shape_from_xshape(const PrepareContext& context) {
  return Shape(context.in("XShape").shape.dims().subspan(1));
}

std::unique_ptr<Prepared> prepare_reshape2_grad(const Mover& mover, PrepareContext& context) {
  return copy_as(mover, context, "Out@GRAD", "X@GRAD", shape_from_xshape(context));
}

// Of the forms without XShape.
std::unique_ptr<Prepared> prepare_relabelled_grad(const Mover& mover, PrepareContext& context) {
  return copy_as(mover, context, "Out@GRAD", "X@GRAD", context.in("X").shape);
}

std::unique_ptr<Prepared> prepare_permute(const Mover& mover, PrepareContext& context,
                                          const char* from, const char* to,
                                          const std::vector<int32_t>& axis) {
  const ValueSpec& x = context.in(from);
  context.require(static_cast<int>(axis.size()) == x.shape.rank(), from,
                  str_cat(axis.size(), " dimensions"), x.shape.to_string());
  Shape out;
  for (const int32_t d : axis) out.push_back(x.shape[d]);
  const auto from_strides = strides_of(x.shape);
  const auto to_strides = strides_of(out);
  StridedWalk walk;
  for (size_t i = 0; i < axis.size(); ++i) {
    walk.add(out[static_cast<int>(i)], from_strides[static_cast<size_t>(axis[i])], to_strides[i]);
  }
  const int in = context.input(from);
  const int result = context.set_output(to, out, x.dtype);
  return make_prepared([=, word = dtype_size(x.dtype)](const KernelContext& c) {
    mover.copy(c, walk, word, c.input(in).raw(), c.output(result).raw());
  });
}

std::unique_ptr<Prepared> prepare_transpose2(const Mover& mover, PrepareContext& context) {
  set_xshape(context);
  return prepare_permute(mover, context, "X", "Out", context.attrs<Transpose2Attrs>().axis);
}

std::unique_ptr<Prepared> prepare_transpose2_grad(const Mover& mover, PrepareContext& context) {
  const auto axis = context.attrs<Transpose2Attrs>().axis;
  std::vector<int32_t> inverse(axis.size());
  for (size_t i = 0; i < axis.size(); ++i) {
    inverse[static_cast<size_t>(axis[i])] = static_cast<int32_t>(i);
  }
  return prepare_permute(mover, context, "Out@GRAD", "X@GRAD", inverse);
}

// Same elements, other dimensions.
std::unique_ptr<Prepared> relabel(const Mover& mover, PrepareContext& context, const Shape& shape) {
  set_xshape(context);
  return copy_as(mover, context, "X", "Out", shape);
}

std::unique_ptr<Prepared> prepare_squeeze2(const Mover& mover, PrepareContext& context) {
  const auto axes = context.attrs<AxesAttrs>().axes;
  return relabel(mover, context, squeezed_shape(context.in("X").shape, axes, where_of(context)));
}

std::unique_ptr<Prepared> prepare_unsqueeze2(const Mover& mover, PrepareContext& context) {
  const auto axes = context.attrs<AxesAttrs>().axes;
  return relabel(mover, context, unsqueezed_shape(context.in("X").shape, axes, where_of(context)));
}

std::unique_ptr<Prepared> prepare_flatten2(const Mover& mover, PrepareContext& context) {
  const int axis = context.attrs<FlattenAttrs>().axis;
  return relabel(mover, context, flattened_shape(context.in("X").shape, axis, where_of(context)));
}

Shape without_axis(const Shape& shape, int axis) {
  std::vector<int64_t> dims = shape.to_vector();
  dims.erase(dims.begin() + axis);
  return Shape(dims);
}

Shape with_axis(const Shape& shape, int axis, int64_t size) {
  std::vector<int64_t> dims = shape.to_vector();
  dims.insert(dims.begin() + axis, size);
  return Shape(dims);
}

// Puts parts together along a new dimension `axis` of the whole.
std::unique_ptr<Prepared> put_together(const Mover& mover, PrepareContext& context,
                                       const char* from, const char* to, int axis) {
  const ValueSpec& first = context.in(from);
  const size_t count = context.input_count(from);
  axis = axis < 0 ? axis + first.shape.rank() + 1 : axis;
  Parts parts;
  for (size_t i = 0; i < count; ++i) {
    const ValueSpec& x = context.in(from, i);
    context.require(x.dtype == first.dtype && x.shape == first.shape, from,
                    str_cat(dtype_name(first.dtype), first.shape),
                    str_cat(dtype_name(x.dtype), x.shape));
    parts.add(with_axis(x.shape, axis, 1), axis, x.dtype);
  }
  const int x = context.input(from);
  const int out = context.set_output(to, with_axis(first.shape, axis, static_cast<int64_t>(count)),
                                     first.dtype);
  return join_parts(mover, x, out, std::move(parts));
}

std::unique_ptr<Prepared> take_along(const Mover& mover, PrepareContext& context, const char* from,
                                     const char* to, int axis) {
  const ValueSpec& whole = context.in(from);
  axis = positive_axis(axis, whole.shape);
  const size_t count = context.output_count(to);
  context.require(whole.shape[axis] == static_cast<int64_t>(count), from,
                  str_cat(count, " along axis ", axis), whole.shape.to_string());
  Parts parts;
  std::vector<int> outs;
  const Shape shape = without_axis(whole.shape, axis);
  for (size_t i = 0; i < count; ++i) {
    parts.add(with_axis(shape, axis, 1), axis, whole.dtype);
    outs.push_back(context.set_output(to, shape, whole.dtype, i));
  }
  return take_apart(mover, context.input(from), std::move(outs), std::move(parts));
}

std::unique_ptr<Prepared> prepare_stack(const Mover& mover, PrepareContext& context) {
  return put_together(mover, context, "X", "Y", context.attrs<StackAttrs>().axis);
}
std::unique_ptr<Prepared> prepare_stack_grad(const Mover& mover, PrepareContext& context) {
  return take_along(mover, context, "Y@GRAD", "X@GRAD", context.attrs<StackAttrs>().axis);
}
std::unique_ptr<Prepared> prepare_unstack(const Mover& mover, PrepareContext& context) {
  return take_along(mover, context, "X", "Y", context.attrs<UnstackAttrs>().axis);
}
std::unique_ptr<Prepared> prepare_unstack_grad(const Mover& mover, PrepareContext& context) {
  return put_together(mover, context, "Y@GRAD", "X@GRAD", context.attrs<UnstackAttrs>().axis);
}

}  // namespace

void register_moves(KernelTable& table, const Mover& mover) {
  using Prepare = std::unique_ptr<Prepared> (*)(const Mover&, PrepareContext&);
  const auto by = [mover](Prepare prepare, std::vector<cpu::TensorAttribute> attributes = {}) {
    const cpu::PrepareKernel bound = [mover, prepare](PrepareContext& c) {
      return prepare(mover, c);
    };
    return attributes.empty() ? bound : cpu::with_tensor_attributes(bound, std::move(attributes));
  };
  const cpu::TensorAttribute axis{.name = "axis", .whole = "AxisTensor", .scalar = true};
  const cpu::TensorAttribute sections{
      .name = "sections", .whole = {}, .list = "SectionsTensorList"};
  const cpu::TensorAttribute shape{.name = "shape", .whole = "Shape", .list = "ShapeTensor"};
  const cpu::TensorAttribute axes{.name = "axes", .whole = "AxesTensor", .list = "AxesTensorList"};
  const Kernel::View forward{.input = "X", .output = "Out", .reshapes = true};
  const Kernel::View backward{.input = "Out@GRAD", .output = "X@GRAD", .reshapes = true};
  const std::map<std::string_view, Kernel::View> views = {
      {"reshape2", forward},       {"squeeze2", forward},         {"unsqueeze2", forward},
      {"flatten2", forward},       {"reshape", forward},          {"squeeze", forward},
      {"unsqueeze", forward},      {"flatten", forward},          {"reshape2_grad", backward},
      {"squeeze2_grad", backward}, {"unsqueeze2_grad", backward}, {"flatten2_grad", backward},
      {"reshape_grad", backward},  {"squeeze_grad", backward},    {"unsqueeze_grad", backward},
      {"flatten_grad", backward}};
  const std::pair<const char*, cpu::PrepareKernel> kernels[] = {
      {"concat", by(prepare_concat, {axis})},
      {"concat_grad", by(prepare_concat_grad, {axis})},
      {"split", by(prepare_split, {axis, sections})},
      {"reshape2", by(prepare_reshape2, {shape})},
      {"reshape2_grad", by(prepare_reshape2_grad)},
      {"transpose2", by(prepare_transpose2)},
      {"transpose2_grad", by(prepare_transpose2_grad)},
      {"squeeze2", by(prepare_squeeze2)},
      {"squeeze2_grad", by(prepare_reshape2_grad)},
      {"unsqueeze2", by(prepare_unsqueeze2, {axes})},
      {"unsqueeze2_grad", by(prepare_reshape2_grad)},
      {"flatten2", by(prepare_flatten2)},
      {"flatten2_grad", by(prepare_reshape2_grad)},
      {"reshape", by(prepare_reshape2)},
      {"squeeze", by(prepare_squeeze2)},
      {"unsqueeze", by(prepare_unsqueeze2)},
      {"flatten", by(prepare_flatten2)},
      {"reshape_grad", by(prepare_relabelled_grad)},
      {"squeeze_grad", by(prepare_relabelled_grad)},
      {"unsqueeze_grad", by(prepare_relabelled_grad)},
      {"flatten_grad", by(prepare_relabelled_grad)},
      {"transpose", by(prepare_transpose2)},
      {"transpose_grad", by(prepare_transpose2_grad)},
      {"stack", by(prepare_stack)},
      {"stack_grad", by(prepare_stack_grad)},
      {"unstack", by(prepare_unstack)},
      {"unstack_grad", by(prepare_unstack_grad)}};
  for (const DType dtype : kElementTypes) {
    for (const auto& [op, prepare] : kernels) {
      Kernel kernel{.name = "copy", .prepare = prepare};
      if (const auto view = views.find(op); view != views.end()) kernel.views = {view->second};
      table.add_last(op, mover.device, dtype, std::move(kernel));
    }
    // The host's alone: it gives views.
    if (mover.device == DeviceKind::kCpu) {
      table.add_last("split_byref", mover.device, dtype,
                     {.name = "copy", .prepare = prepare_split_byref});
    }
  }
}

}  // namespace fleet::fluid
