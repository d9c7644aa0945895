// Ops that cut boxes out of tensors, put them there, turn them around and repeat them.
#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/shape/expansion.h"
#include "fluid/kernels/shape/mover.h"
#include "fluid/ops/shape/index_ops.h"

namespace fleet::fluid {

Expansion expansion_of(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const auto times = context.attrs<ExpandAttrs>().expand_times;
  context.require(static_cast<int>(times.size()) == x.rank(), "X",
                  str_cat(times.size(), " dimensions, as expand_times has"), x.to_string());
  context.require(std::all_of(times.begin(), times.end(), [](int32_t n) { return n >= 1; }), "X",
                  "expand_times >= 1", "[" + join(times, ", ") + "]");
  Expansion e;
  for (int i = 0; i < x.rank(); ++i) e.out.push_back(x[i] * times[static_cast<size_t>(i)]);
  const auto from = strides_of(x);
  const auto to = strides_of(e.out);
  for (int i = 0; i < x.rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    e.forward.add(times[at], 0, to[at] * x[i]);
    e.forward.add(x[i], from[at], to[at]);
    e.back.add(times[at], to[at] * x[i], 0);
    e.back.add(x[i], to[at], from[at]);
  }
  return e;
}

namespace {

// Cuts a box out of a tensor, or puts a box into one.
struct Box {
  StridedWalk walk;    // from the whole to the part
  int64_t offset = 0;  // of the box in the whole, in elements

  Box(const Shape& whole, const std::vector<int64_t>& first, const Shape& length) {
    const auto strides = strides_of(whole);
    const auto part = strides_of(length);
    for (int i = 0; i < whole.rank(); ++i) {
      const auto at = static_cast<size_t>(i);
      offset += first[at] * strides[at];
      walk.add(length[i], strides[at], part[at]);
    }
  }
};

// The other way round: from the part to the whole.
StridedWalk into(const Shape& whole, const Shape& length) {
  const auto strides = strides_of(whole);
  const auto part = strides_of(length);
  StridedWalk walk;
  for (int i = 0; i < whole.rank(); ++i) {
    walk.add(length[i], part[static_cast<size_t>(i)], strides[static_cast<size_t>(i)]);
  }
  return walk;
}

std::unique_ptr<Prepared> cut_box(const Mover& mover, PrepareContext& context, const char* from,
                                  const char* to, const std::vector<int64_t>& first,
                                  const Shape& length, const Shape& out_shape) {
  const ValueSpec& whole = context.in(from);
  const Box box(whole.shape, first, length);
  const int x = context.input(from);
  const int out = context.set_output(to, out_shape, whole.dtype);
  const size_t word = dtype_size(whole.dtype);
  return make_prepared([=](const KernelContext& c) {
    mover.copy(c, box.walk, word, c.input(x).raw() + box.offset * static_cast<int64_t>(word),
               c.output(out).raw());
  });
}

// `value` everywhere, one element of `dtype`, and the box over it.
std::unique_ptr<Prepared> put_box(const Mover& mover, PrepareContext& context, const char* from,
                                  const char* to, const Shape& whole,
                                  const std::vector<int64_t>& first, const Shape& length,
                                  uint64_t value) {
  const DType dtype = context.in(from).dtype;
  const size_t word = dtype_size(dtype);
  const int64_t offset = Box(whole, first, length).offset * static_cast<int64_t>(word);
  const StridedWalk walk = into(whole, length);
  const int x = context.input(from);
  const int out = context.set_output(to, whole, dtype);
  return make_prepared([=, n = whole.numel()](const KernelContext& c) {
    std::byte* outs = c.output(out).raw();
    mover.fill(c, value, word, outs, n);
    mover.copy(c, walk, word, c.input(x).raw(), outs + offset);
  });
}

std::string where_of(const PrepareContext& context, const char* slot) {
  return str_cat("op '", context.op().type, "', ", slot, " '", join(context.op().input(slot), ", "),
                 "'");
}

std::unique_ptr<Prepared> prepare_slice(const Mover& mover, PrepareContext& context) {
  const auto range = slice_range(context.in("Input").shape, context.attrs<SliceAttrs>(),
                                 where_of(context, "Input"));
  return cut_box(mover, context, "Input", "Out", range.first, range.length, range.out);
}

std::unique_ptr<Prepared> prepare_slice_grad(const Mover& mover, PrepareContext& context) {
  const Shape& whole = context.in("Input").shape;
  const auto range = slice_range(whole, context.attrs<SliceAttrs>(), where_of(context, "Input"));
  context.require(context.in("Out@GRAD").shape.numel() == range.length.numel(), "Out@GRAD",
                  range.out.to_string(), context.in("Out@GRAD").shape.to_string());
  return put_box(mover, context, "Out@GRAD", "Input@GRAD", whole, range.first, range.length, 0);
}

struct Padding {
  std::vector<int64_t> before;
  Shape big;
  Shape small;
};

// sign 1: `from` is the small one, -1: the big one.
Padding padding_of(const PrepareContext& context, const char* slot, int sign) {
  const Shape& from = context.in(slot).shape;
  const auto paddings = context.attrs<PadAttrs>().paddings;
  context.require(static_cast<int>(paddings.size()) == 2 * from.rank(), slot,
                  str_cat(paddings.size() / 2, " dimensions, as paddings has"), from.to_string());
  Padding padding{.before = {}, .big = from, .small = from};
  for (int i = 0; i < from.rank(); ++i) {
    const auto at = size_t{2} * static_cast<size_t>(i);
    padding.before.push_back(paddings[at]);
    Shape& other = sign > 0 ? padding.big : padding.small;
    other.set(i, from[i] + sign * (int64_t{paddings[at]} + paddings[at + 1]));
    context.require(other[i] >= 0, slot, "at least as long as the paddings", from.to_string());
  }
  return padding;
}

template <class T>
std::unique_ptr<Prepared> prepare_pad(const Mover& mover, PrepareContext& context) {
  const Padding padding = padding_of(context, "X", 1);
  const T value = static_cast<T>(context.attrs<PadAttrs>().pad_value);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return put_box(mover, context, "X", "Out", padding.big, padding.before, padding.small, bits);
}

std::unique_ptr<Prepared> prepare_pad_grad(const Mover& mover, PrepareContext& context) {
  const Padding padding = padding_of(context, "Out@GRAD", -1);
  return cut_box(mover, context, "Out@GRAD", "X@GRAD", padding.before, padding.small,
                 padding.small);
}

std::unique_ptr<Prepared> prepare_reverse(const Mover& mover, PrepareContext& context) {
  const ValueSpec& x = context.in("X");
  const auto strides = strides_of(x.shape);
  const int rank = x.shape.rank();
  std::vector<bool> turned(static_cast<size_t>(rank), false);
  for (const int32_t axis : context.attrs<ReverseAttrs>().axis) {
    turned[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  StridedWalk walk;
  int64_t offset = 0;
  for (int i = 0; i < rank; ++i) {
    const auto at = static_cast<size_t>(i);
    if (turned[at] && x.shape[i] > 0) offset += (x.shape[i] - 1) * strides[at];
    walk.add(x.shape[i], turned[at] ? -strides[at] : strides[at], strides[at]);
  }
  const int in = context.input("X");
  const int out = context.set_output("Out", x.shape, x.dtype);
  const size_t word = dtype_size(x.dtype);
  return make_prepared([=](const KernelContext& c) {
    mover.copy(c, walk, word, c.input(in).raw() + offset * static_cast<int64_t>(word),
               c.output(out).raw());
  });
}

std::unique_ptr<Prepared> prepare_expand(const Mover& mover, PrepareContext& context) {
  const Expansion e = expansion_of(context);
  const DType dtype = context.in("X").dtype;
  const int x = context.input("X");
  const int out = context.set_output("Out", e.out, dtype);
  return make_prepared([=, walk = e.forward, word = dtype_size(dtype)](const KernelContext& c) {
    mover.copy(c, walk, word, c.input(x).raw(), c.output(out).raw());
  });
}

}  // namespace

void register_boxes(KernelTable& table, const Mover& mover) {
  const std::vector<cpu::TensorAttribute> range = {
      {.name = "starts", .whole = "StartsTensor", .list = "StartsTensorList"},
      {.name = "ends", .whole = "EndsTensor", .list = "EndsTensorList"}};
  const std::vector<cpu::TensorAttribute> times = {
      {.name = "expand_times", .whole = "ExpandTimes", .list = "expand_times_tensor"}};
  const auto by = [&mover](auto prepare) -> cpu::PrepareKernel {
    return [mover, prepare](PrepareContext& context) { return prepare(mover, context); };
  };
  const auto add = [&](DType dtype, const char* op, const cpu::PrepareKernel& prepare) {
    table.add_last(op, mover.device, dtype, {.name = "copy", .prepare = prepare});
  };
  const auto slice = cpu::with_tensor_attributes(by(prepare_slice), range);
  const auto slice_grad = cpu::with_tensor_attributes(by(prepare_slice_grad), range);
  const auto expand = cpu::with_tensor_attributes(by(prepare_expand), times);
  for (const DType dtype : kElementTypes) {
    add(dtype, "slice", slice);
    add(dtype, "slice_grad", slice_grad);
    add(dtype, "reverse", by(prepare_reverse));
    add(dtype, "expand", expand);
  }
  cpu::for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T>) {
        add(dtype_of<T>(), "pad", by(prepare_pad<T>));
        add(dtype_of<T>(), "pad_grad", by(prepare_pad_grad));
      });
}

}  // namespace fleet::fluid
