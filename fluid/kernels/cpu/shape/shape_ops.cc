// Ops that move or relabel elements, of any type.
#include "fluid/ops/shape/shape_ops.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/shape/strided.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/ops/distributed/comm.h"

namespace fleet::fluid::cpu {
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

// Parts of a whole along one axis: in every outer row, part i is a run of bytes.
struct Parts {
  size_t rows = 1;
  std::vector<size_t> bytes;  // of one run
  size_t total = 0;           // of one outer row of the whole

  void add(const Shape& part, int axis, DType dtype) {
    rows = static_cast<size_t>(part.numel(0, axis));
    bytes.push_back(static_cast<size_t>(part.numel(axis, part.rank())) * dtype_size(dtype));
    total += bytes.back();
  }
};

std::unique_ptr<Prepared> prepare_concat(PrepareContext& context) {
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
  return make_prepared([=](const KernelContext& c) {
    std::byte* to = c.output(out).raw();
    size_t offset = 0;
    for (size_t i = 0; i < count; ++i) {
      const std::byte* from = c.input(x + static_cast<int>(i)).raw();
      const size_t run = parts.bytes[i];
      // Slices that were received into the whole are there already.
      const bool in_place = parts.rows == 1 && from == to + offset;
      for (size_t row = 0; row < parts.rows && run != 0 && !in_place; ++row) {
        std::memcpy(to + row * parts.total + offset, from + row * run, run);
      }
      offset += run;
    }
  });
}

// Copies the runs of `whole` out to the outputs; an output nobody wants is -1.
std::unique_ptr<Prepared> take_apart(int whole, std::vector<int> outs, Parts parts) {
  return make_prepared(
      [whole, outs = std::move(outs), parts = std::move(parts)](const KernelContext& c) {
        const std::byte* from = c.input(whole).raw();
        size_t offset = 0;
        for (size_t i = 0; i < outs.size(); ++i) {
          const size_t run = parts.bytes[i];
          std::byte* to = outs[i] >= 0 ? c.output(outs[i]).raw() : nullptr;
          for (size_t row = 0; row < parts.rows && run != 0 && to != nullptr; ++row) {
            std::memcpy(to + row * run, from + row * parts.total + offset, run);
          }
          offset += run;
        }
      });
}

std::unique_ptr<Prepared> prepare_concat_grad(PrepareContext& context) {
  const ValueSpec& first = context.in("X");
  const int axis = checked_axis(context, context.attrs<ConcatAttrs>().axis);
  Parts parts;
  std::vector<int> outs;
  for (size_t i = 0; i < context.input_count("X"); ++i) {
    const ValueSpec& x = context.in("X", i);
    parts.add(x.shape, axis, x.dtype);
    outs.push_back(context.set_output("X@GRAD", x.shape, x.dtype, i));
  }
  context.require(
      static_cast<size_t>(context.in("Out@GRAD").shape.numel()) * dtype_size(first.dtype) ==
          parts.rows * parts.total,
      "Out@GRAD", "as many elements as all of X", context.in("Out@GRAD").shape.to_string());
  return take_apart(context.input("Out@GRAD"), std::move(outs), std::move(parts));
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

std::unique_ptr<Prepared> split_along(PrepareContext& context, int axis,
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
  return take_apart(context.input("X"), std::move(outs), std::move(parts));
}

std::unique_ptr<Prepared> prepare_split(PrepareContext& context) {
  const auto attrs = context.attrs<SplitAttrs>();
  const Shape& shape = context.in("X").shape;
  const int axis = checked_axis(context, attrs.axis);
  const std::vector<int64_t> given(attrs.sections.begin(), attrs.sections.end());
  return split_along(context, axis, sections_of(context, given, attrs.num, shape[axis]));
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

std::unique_ptr<Prepared> copy_as(PrepareContext& context, const char* from, const char* to,
                                  const Shape& shape) {
  const int x = context.input(from);
  const int out = context.set_output(to, shape, context.in(from).dtype);
  return make_prepared([=](const KernelContext& c) {
    if (c.output(out).raw() != c.input(x).raw()) c.output(out).copy_from(c.input(x));
  });
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

std::unique_ptr<Prepared> prepare_reshape2(PrepareContext& context) {
  const Shape shape = reshaped_shape(context.in("X").shape, context.attrs<Reshape2Attrs>().shape,
                                     where_of(context));
  set_xshape(context);
  return copy_as(context, "X", "Out", shape);
}

Shape shape_from_xshape(const PrepareContext& context) {
  return Shape(context.in("XShape").shape.dims().subspan(1));
}

std::unique_ptr<Prepared> prepare_reshape2_grad(PrepareContext& context) {
  return copy_as(context, "Out@GRAD", "X@GRAD", shape_from_xshape(context));
}

// Of the forms without XShape.
std::unique_ptr<Prepared> prepare_relabelled_grad(PrepareContext& context) {
  return copy_as(context, "Out@GRAD", "X@GRAD", context.in("X").shape);
}

std::unique_ptr<Prepared> prepare_permute(PrepareContext& context, const char* from, const char* to,
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
    strided_copy(walk, word, c.input(in).raw(), c.output(result).raw());
  });
}

std::unique_ptr<Prepared> prepare_transpose2(PrepareContext& context) {
  set_xshape(context);
  return prepare_permute(context, "X", "Out", context.attrs<Transpose2Attrs>().axis);
}

std::unique_ptr<Prepared> prepare_transpose2_grad(PrepareContext& context) {
  const auto axis = context.attrs<Transpose2Attrs>().axis;
  std::vector<int32_t> inverse(axis.size());
  for (size_t i = 0; i < axis.size(); ++i) {
    inverse[static_cast<size_t>(axis[i])] = static_cast<int32_t>(i);
  }
  return prepare_permute(context, "Out@GRAD", "X@GRAD", inverse);
}

// Same elements, other dimensions.
std::unique_ptr<Prepared> relabel(PrepareContext& context, const Shape& shape) {
  set_xshape(context);
  return copy_as(context, "X", "Out", shape);
}

std::unique_ptr<Prepared> prepare_squeeze2(PrepareContext& context) {
  const auto axes = context.attrs<AxesAttrs>().axes;
  return relabel(context, squeezed_shape(context.in("X").shape, axes, where_of(context)));
}

std::unique_ptr<Prepared> prepare_unsqueeze2(PrepareContext& context) {
  const auto axes = context.attrs<AxesAttrs>().axes;
  return relabel(context, unsqueezed_shape(context.in("X").shape, axes, where_of(context)));
}

std::unique_ptr<Prepared> prepare_flatten2(PrepareContext& context) {
  const int axis = context.attrs<FlattenAttrs>().axis;
  return relabel(context, flattened_shape(context.in("X").shape, axis, where_of(context)));
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
std::unique_ptr<Prepared> put_together(PrepareContext& context, const char* from, const char* to,
                                       int axis) {
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
  return make_prepared([=](const KernelContext& c) {
    std::byte* whole = c.output(out).raw();
    for (size_t i = 0; i < count; ++i) {
      const std::byte* part = c.input(x + static_cast<int>(i)).raw();
      const size_t run = parts.bytes[i];
      for (size_t row = 0; row < parts.rows && run != 0; ++row) {
        std::memcpy(whole + row * parts.total + i * run, part + row * run, run);
      }
    }
  });
}

std::unique_ptr<Prepared> take_along(PrepareContext& context, const char* from, const char* to,
                                     int axis) {
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
  return take_apart(context.input(from), std::move(outs), std::move(parts));
}

std::unique_ptr<Prepared> prepare_stack(PrepareContext& context) {
  return put_together(context, "X", "Y", context.attrs<StackAttrs>().axis);
}
std::unique_ptr<Prepared> prepare_stack_grad(PrepareContext& context) {
  return take_along(context, "Y@GRAD", "X@GRAD", context.attrs<StackAttrs>().axis);
}
std::unique_ptr<Prepared> prepare_unstack(PrepareContext& context) {
  return take_along(context, "X", "Y", context.attrs<UnstackAttrs>().axis);
}
std::unique_ptr<Prepared> prepare_unstack_grad(PrepareContext& context) {
  return put_together(context, "Y@GRAD", "X@GRAD", context.attrs<UnstackAttrs>().axis);
}

}  // namespace

void register_manipulation(KernelTable& table) {
  const TensorAttribute axis{.name = "axis", .whole = "AxisTensor", .scalar = true};
  const TensorAttribute sections{.name = "sections", .whole = {}, .list = "SectionsTensorList"};
  const TensorAttribute shape{.name = "shape", .whole = "Shape", .list = "ShapeTensor"};
  const TensorAttribute axes{.name = "axes", .whole = "AxesTensor", .list = "AxesTensorList"};
  const PrepareKernel concat = with_tensor_attributes(prepare_concat, {axis});
  const PrepareKernel concat_grad = with_tensor_attributes(prepare_concat_grad, {axis});
  const PrepareKernel split = with_tensor_attributes(prepare_split, {axis, sections});
  const PrepareKernel reshape2 = with_tensor_attributes(prepare_reshape2, {shape});
  const PrepareKernel unsqueeze2 = with_tensor_attributes(prepare_unsqueeze2, {axes});
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T>) {
        const auto add = [&table](const char* op, const auto& prepare) {
          table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "copy", .prepare = prepare});
        };
        add("concat", concat);
        add("concat_grad", concat_grad);
        add("split", split);
        add("split_byref", prepare_split_byref);
        add("reshape2", reshape2);
        add("reshape2_grad", prepare_reshape2_grad);
        add("transpose2", prepare_transpose2);
        add("transpose2_grad", prepare_transpose2_grad);
        add("squeeze2", prepare_squeeze2);
        add("squeeze2_grad", prepare_reshape2_grad);
        add("unsqueeze2", unsqueeze2);
        add("unsqueeze2_grad", prepare_reshape2_grad);
        add("flatten2", prepare_flatten2);
        add("flatten2_grad", prepare_reshape2_grad);
        add("reshape", prepare_reshape2);
        add("squeeze", prepare_squeeze2);
        add("unsqueeze", prepare_unsqueeze2);
        add("flatten", prepare_flatten2);
        for (const char* op : {"reshape_grad", "squeeze_grad", "unsqueeze_grad", "flatten_grad"}) {
          add(op, prepare_relabelled_grad);
        }
        add("transpose", prepare_transpose2);
        add("transpose_grad", prepare_transpose2_grad);
        add("stack", prepare_stack);
        add("stack_grad", prepare_stack_grad);
        add("unstack", prepare_unstack);
        add("unstack_grad", prepare_unstack_grad);
      });
}

}  // namespace fleet::fluid::cpu
