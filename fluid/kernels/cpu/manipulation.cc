// Ops that move or relabel elements, of any type.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/comm.h"
#include "fluid/ops/shape_ops.h"

namespace fleet::fluid::cpu {
namespace {

int positive_axis(int axis, const Shape& shape) {
  return axis < 0 ? axis + shape.rank() : axis;
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
  if (context.has_input("AxisTensor")) return nullptr;
  const ValueSpec& first = context.in("X");
  const int axis = positive_axis(context.attrs<ConcatAttrs>().axis, first.shape);
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
  if (context.has_input("AxisTensor")) return nullptr;
  const ValueSpec& first = context.in("X");
  const int axis = positive_axis(context.attrs<ConcatAttrs>().axis, first.shape);
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
  context.require(sum == whole && static_cast<int64_t>(sizes.size()) == outputs, "X",
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
  if (context.has_input("AxisTensor") || context.has_input("SectionsTensorList")) return nullptr;
  const auto attrs = context.attrs<SplitAttrs>();
  const Shape& shape = context.in("X").shape;
  const int axis = positive_axis(attrs.axis, shape);
  const std::vector<int64_t> given(attrs.sections.begin(), attrs.sections.end());
  return split_along(context, axis, sections_of(context, given, attrs.num, shape[axis]));
}

// Runs of rows, as views of X; the plan keeps X's memory apart (fluid/executor/plan.cc).
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

std::unique_ptr<Prepared> prepare_reshape2(PrepareContext& context) {
  if (context.has_input("Shape") || context.has_input("ShapeTensor")) return nullptr;
  const Shape shape = reshaped_shape(context.in("X").shape, context.attrs<Reshape2Attrs>().shape,
                                     "op 'reshape2', X '" + context.op().input("X")[0] + "'");
  set_xshape(context);
  return copy_as(context, "X", "Out", shape);
}

Shape shape_from_xshape(const PrepareContext& context) {
  return Shape(context.in("XShape").shape.dims().subspan(1));
}

std::unique_ptr<Prepared> prepare_reshape2_grad(PrepareContext& context) {
  return copy_as(context, "Out@GRAD", "X@GRAD", shape_from_xshape(context));
}

// Copies elements of `Size` bytes so that dimension i of the result is dimension axis[i] of x.
template <class Word>
std::unique_ptr<Prepared> permute(int from, int to, const Shape& out,
                                  const std::array<int64_t, Shape::kMaxRank>& strides) {
  return make_prepared([=](const KernelContext& c) {
    const auto* xs = reinterpret_cast<const Word*>(c.input(from).raw());
    auto* outs = reinterpret_cast<Word*>(c.output(to).raw());
    const int64_t n = out.numel();
    std::array<int64_t, Shape::kMaxRank> index{};
    int64_t at = 0;
    for (int64_t i = 0; i < n; ++i) {
      outs[i] = xs[at];
      for (int d = out.rank() - 1; d >= 0; --d) {
        const auto k = static_cast<size_t>(d);
        at += strides[k];
        if (++index[k] < out[d]) break;
        at -= strides[k] * out[d];
        index[k] = 0;
      }
    }
  });
}

std::unique_ptr<Prepared> prepare_permute(PrepareContext& context, const char* from, const char* to,
                                          const std::vector<int32_t>& axis) {
  const ValueSpec& x = context.in(from);
  context.require(static_cast<int>(axis.size()) == x.shape.rank(), from,
                  str_cat(axis.size(), " dimensions"), x.shape.to_string());
  std::array<int64_t, Shape::kMaxRank> strides{};
  Shape out;
  for (size_t i = 0; i < axis.size(); ++i) {
    out.push_back(x.shape[axis[i]]);
    strides[i] = x.shape.numel(axis[i] + 1, x.shape.rank());
  }
  const int in = context.input(from);
  const int result = context.set_output(to, out, x.dtype);
  switch (dtype_size(x.dtype)) {
    case 1:
      return permute<uint8_t>(in, result, out, strides);
    case 2:
      return permute<uint16_t>(in, result, out, strides);
    case 4:
      return permute<uint32_t>(in, result, out, strides);
    default:
      return permute<uint64_t>(in, result, out, strides);
  }
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

}  // namespace

void register_manipulation(KernelTable& table) {
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&table]<class T>(std::type_identity<T>) {
        const auto add = [&table](const char* op, auto prepare) {
          table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "copy", .prepare = prepare});
        };
        add("concat", prepare_concat);
        add("concat_grad", prepare_concat_grad);
        add("split", prepare_split);
        add("split_byref", prepare_split_byref);
        add("reshape2", prepare_reshape2);
        add("reshape2_grad", prepare_reshape2_grad);
        add("transpose2", prepare_transpose2);
        add("transpose2_grad", prepare_transpose2_grad);
      });
}

}  // namespace fleet::fluid::cpu
