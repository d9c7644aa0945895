// Ops that take elements from places or put them there.
#include "fluid/ops/shape/index_ops.h"

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/shape/strided.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/shape/expansion.h"

namespace fleet::fluid::cpu {
namespace {

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
  const std::vector<TensorAttribute> times = {
      {.name = "expand_times", .whole = "ExpandTimes", .list = "expand_times_tensor"}};
  const auto add = [&table]<class T>(std::type_identity<T>, const char* op, const auto& prepare) {
    table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "copy", .prepare = prepare});
  };
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T> type) {
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
