// Ops that take elements from places or put them there.
#include "fluid/ops/shape/index_ops.h"

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/shape/strided.h"
#include "fluid/kernels/cpu/tensor_attributes.h"

namespace fleet::fluid::cpu {
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

std::unique_ptr<Prepared> cut_box(PrepareContext& context, const char* from, const char* to,
                                  const std::vector<int64_t>& first, const Shape& length,
                                  const Shape& out_shape) {
  const ValueSpec& whole = context.in(from);
  const Box box(whole.shape, first, length);
  const int x = context.input(from);
  const int out = context.set_output(to, out_shape, whole.dtype);
  const size_t word = dtype_size(whole.dtype);
  return make_prepared([=](const KernelContext& c) {
    strided_copy(box.walk, word, c.input(x).raw() + box.offset * static_cast<int64_t>(word),
                 c.output(out).raw());
  });
}

// `value` everywhere, one element of `dtype`, and the box over it.
std::unique_ptr<Prepared> put_box(PrepareContext& context, const char* from, const char* to,
                                  const Shape& whole, const std::vector<int64_t>& first,
                                  const Shape& length, uint64_t value) {
  const DType dtype = context.in(from).dtype;
  const size_t word = dtype_size(dtype);
  const int64_t offset = Box(whole, first, length).offset * static_cast<int64_t>(word);
  const StridedWalk walk = into(whole, length);
  const int x = context.input(from);
  const int out = context.set_output(to, whole, dtype);
  StridedWalk fill;
  fill.add(whole.numel(), 0, 1);
  return make_prepared([=](const KernelContext& c) {
    std::byte* outs = c.output(out).raw();
    std::byte pattern[sizeof(value)];
    std::memcpy(pattern, &value, sizeof(value));
    strided_copy(fill, word, pattern, outs);
    strided_copy(walk, word, c.input(x).raw(), outs + offset);
  });
}

std::string where_of(const PrepareContext& context, const char* slot) {
  return str_cat("op '", context.op().type, "', ", slot, " '", join(context.op().input(slot), ", "),
                 "'");
}

std::unique_ptr<Prepared> prepare_slice(PrepareContext& context) {
  const auto range = slice_range(context.in("Input").shape, context.attrs<SliceAttrs>(),
                                 where_of(context, "Input"));
  return cut_box(context, "Input", "Out", range.first, range.length, range.out);
}

std::unique_ptr<Prepared> prepare_slice_grad(PrepareContext& context) {
  const Shape& whole = context.in("Input").shape;
  const auto range = slice_range(whole, context.attrs<SliceAttrs>(), where_of(context, "Input"));
  context.require(context.in("Out@GRAD").shape.numel() == range.length.numel(), "Out@GRAD",
                  range.out.to_string(), context.in("Out@GRAD").shape.to_string());
  return put_box(context, "Out@GRAD", "Input@GRAD", whole, range.first, range.length, 0);
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
std::unique_ptr<Prepared> prepare_pad(PrepareContext& context) {
  const Padding padding = padding_of(context, "X", 1);
  const T value = static_cast<T>(context.attrs<PadAttrs>().pad_value);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(value));
  return put_box(context, "X", "Out", padding.big, padding.before, padding.small, bits);
}

std::unique_ptr<Prepared> prepare_pad_grad(PrepareContext& context) {
  const Padding padding = padding_of(context, "Out@GRAD", -1);
  return cut_box(context, "Out@GRAD", "X@GRAD", padding.before, padding.small, padding.small);
}

std::unique_ptr<Prepared> prepare_reverse(PrepareContext& context) {
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
    strided_copy(walk, word, c.input(in).raw() + offset * static_cast<int64_t>(word),
                 c.output(out).raw());
  });
}

// From X to Out: a dimension of repetitions outside each dimension.
struct Expansion {
  StridedWalk forward;
  StridedWalk back;
  Shape out;
};

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

std::unique_ptr<Prepared> prepare_expand(PrepareContext& context) {
  const Expansion e = expansion_of(context);
  const DType dtype = context.in("X").dtype;
  const int x = context.input("X");
  const int out = context.set_output("Out", e.out, dtype);
  return make_prepared([=, walk = e.forward, word = dtype_size(dtype)](const KernelContext& c) {
    strided_copy(walk, word, c.input(x).raw(), c.output(out).raw());
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_expand_grad(PrepareContext& context) {
  const Expansion e = expansion_of(context);
  const Shape& shape = context.in("X").shape;
  context.require(context.in("Out@GRAD").shape == e.out, "Out@GRAD", e.out.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, walk = e.back, n = shape.numel()](const KernelContext& c) {
    T* outs = c.out<T>(out);
    std::fill(outs, outs + n, T{});
    strided_add(walk, c.in<T>(grad), outs);
  });
}

// Indices of int32 or int64, as int64.
struct Indices {
  int input = -1;
  bool wide = true;
  int64_t count = 0;

  int64_t operator()(const KernelContext& c, int64_t i) const {
    return wide ? c.in<int64_t>(input)[i] : c.in<int32_t>(input)[i];
  }
};

Indices indices_of(const PrepareContext& context, const char* slot) {
  const ValueSpec& spec = context.in(slot);
  const bool wide = spec.dtype == DType::kInt64;
  context.require(wide || spec.dtype == DType::kInt32, slot, "int32 or int64",
                  std::string(dtype_name(spec.dtype)));
  return {.input = context.input(slot), .wide = wide, .count = spec.shape.numel()};
}

int64_t checked_row(int64_t row, int64_t rows, const char* op) {
  if (row >= 0 && row < rows) return row;
  throw_error(ErrorCode::kFeed, {.what = "an index is outside of the rows",
                                 .where = str_cat("op '", op, "'"),
                                 .expected = str_cat("0 to ", rows - 1),
                                 .got = str_cat(row),
                                 .fix = "correct the indices, or give the variable more rows"});
}

int64_t row_size(const Shape& shape) {
  return shape.numel(1, shape.rank());
}

std::unique_ptr<Prepared> prepare_gather(PrepareContext& context) {
  const ValueSpec& spec = context.in("X");
  const Indices index = indices_of(context, "Index");
  context.require(spec.shape.rank() >= 1, "X", "rows", spec.shape.to_string());
  Shape shape = spec.shape;
  shape.set(0, index.count);
  const int64_t rows = spec.shape[0];
  const size_t bytes = static_cast<size_t>(row_size(shape)) * dtype_size(spec.dtype);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, spec.dtype);
  return make_prepared([=](const KernelContext& c) {
    const std::byte* from = c.input(x).raw();
    std::byte* to = c.output(out).raw();
    for (int64_t i = 0; i < index.count; ++i) {
      const auto row = static_cast<size_t>(checked_row(index(c, i), rows, "gather"));
      if (bytes != 0) std::memcpy(to + static_cast<size_t>(i) * bytes, from + row * bytes, bytes);
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_gather_grad(PrepareContext& context) {
  const Shape& shape = context.in("X").shape;
  const Indices index = indices_of(context, "Index");
  const int64_t length = row_size(shape);
  context.require(context.in("Out@GRAD").shape.numel() == index.count * length, "Out@GRAD",
                  str_cat(index.count, " rows of ", length),
                  context.in("Out@GRAD").shape.to_string());
  const bool overwrite = context.attrs<GatherAttrs>().overwrite;
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, rows = shape[0]](const KernelContext& c) {
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    std::fill(outs, outs + rows * length, T{});
    for (int64_t i = 0; i < index.count; ++i) {
      T* to = outs + checked_row(index(c, i), rows, "gather_grad") * length;
      const T* from = grads + i * length;
      if (overwrite) std::fill(to, to + length, T{});
      for (int64_t j = 0; j < length; ++j) to[j] += from[j];
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_scatter(PrepareContext& context) {
  const Shape& shape = context.in("X").shape;
  const Indices ids = indices_of(context, "Ids");
  const int64_t length = row_size(shape);
  context.require(context.in("Updates").shape.numel() == ids.count * length, "Updates",
                  str_cat(ids.count, " rows of ", length), context.in("Updates").shape.to_string());
  const bool overwrite = context.attrs<ScatterAttrs>().overwrite;
  const int x = context.input("X");
  const int updates = context.input("Updates");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, rows = shape[0]](const KernelContext& c) {
    T* outs = c.out<T>(out);
    if (c.output(out).raw() != c.input(x).raw()) c.output(out).copy_from(c.input(x));
    for (int64_t i = 0; i < ids.count; ++i) {
      T* to = outs + checked_row(ids(c, i), rows, "scatter") * length;
      std::fill(to, to + length, T{});
    }
    const T* from = c.in<T>(updates);
    for (int64_t i = 0; i < ids.count; ++i, from += length) {
      T* to = outs + ids(c, i) * length;
      for (int64_t j = 0; j < length; ++j) to[j] = overwrite ? from[j] : to[j] + from[j];
    }
  });
}

// Rows that were replaced pass nothing to X; of updates to one row, the last passed on.
template <class T>
std::unique_ptr<Prepared> prepare_scatter_grad(PrepareContext& context) {
  const Shape& shape = context.in("Out@GRAD").shape;
  const Indices ids = indices_of(context, "Ids");
  const int64_t length = row_size(shape);
  const auto attrs = context.attrs<ScatterAttrs>();
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int update_grad =
      context.set_output("Updates@GRAD", context.in("Updates").shape, dtype_of<T>());
  const int64_t rows = shape[0];
  std::vector<int64_t> last(static_cast<size_t>(rows));
  return make_prepared([=](const KernelContext& c) mutable {
    const T* grads = c.in<T>(grad);
    for (int64_t i = 0; i < ids.count; ++i) {
      last[static_cast<size_t>(checked_row(ids(c, i), rows, "scatter_grad"))] = i;
    }
    if (x_grad >= 0) c.output(x_grad).copy_from(c.input(grad));
    for (int64_t i = 0; i < ids.count; ++i) {
      const int64_t row = ids(c, i);
      if (x_grad >= 0 && !attrs.paddle_form) {
        T* to = c.out<T>(x_grad) + row * length;
        std::fill(to, to + length, T{});
      }
      if (update_grad < 0) continue;
      T* to = c.out<T>(update_grad) + i * length;
      const bool every = !attrs.overwrite || attrs.paddle_form;
      const bool counts = every || last[static_cast<size_t>(row)] == i;
      for (int64_t j = 0; j < length; ++j) to[j] = counts ? grads[row * length + j] : T{};
    }
  });
}

std::unique_ptr<Prepared> prepare_shape(PrepareContext& context) {
  const Shape shape = context.in("Input").shape;
  const int out = context.set_output("Out", Shape{shape.rank()}, DType::kInt32);
  return make_prepared([=](const KernelContext& c) {
    for (int i = 0; i < shape.rank(); ++i) c.out<int32_t>(out)[i] = static_cast<int32_t>(shape[i]);
  });
}

}  // namespace

void register_index(KernelTable& table) {
  const std::vector<TensorAttribute> range = {
      {.name = "starts", .whole = "StartsTensor", .list = "StartsTensorList"},
      {.name = "ends", .whole = "EndsTensor", .list = "EndsTensorList"}};
  const std::vector<TensorAttribute> times = {
      {.name = "expand_times", .whole = "ExpandTimes", .list = "expand_times_tensor"}};
  const PrepareKernel slice = with_tensor_attributes(prepare_slice, range);
  const PrepareKernel slice_grad = with_tensor_attributes(prepare_slice_grad, range);
  const PrepareKernel expand = with_tensor_attributes(prepare_expand, times);
  const auto add = [&table]<class T>(std::type_identity<T>, const char* op, const auto& prepare) {
    table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "copy", .prepare = prepare});
  };
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T> type) {
        add(type, "slice", slice);
        add(type, "slice_grad", slice_grad);
        add(type, "pad", prepare_pad<T>);
        add(type, "pad_grad", prepare_pad_grad);
        add(type, "reverse", prepare_reverse);
        add(type, "expand", expand);
        add(type, "gather", prepare_gather);
        add(type, "shape", prepare_shape);
      });
  for_types<int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T> type) { add(type, "scatter", prepare_scatter<T>); });
  for_types<float, double>([&]<class T>(std::type_identity<T> type) {
    add(type, "expand_grad", with_tensor_attributes(prepare_expand_grad<T>, times));
    add(type, "gather_grad", prepare_gather_grad<T>);
    add(type, "scatter_grad", prepare_scatter_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
