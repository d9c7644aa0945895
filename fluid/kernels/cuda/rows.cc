// Ops that take selected rows in place of tensors: sums, scales, clips, merges.
#include <algorithm>
#include <optional>
#include <vector>

#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/device_rows_impl.h"
#include "fluid/kernels/cuda/math/unary_loops.h"
#include "fluid/ops/math/scale.h"

namespace fleet::fluid::cuda {
namespace {

// All rows one after the other, as they come.
template <class T>
void join_rows(const KernelContext& c, int first, size_t count, int out) {
  fill_rows(c, first, count, out, [&](SelectedRows& made) {
    const SelectedRows& head = c.rows_input(first);
    made.height = head.height;
    made.rows.clear();
    const auto part = [&](size_t i) -> const SelectedRows& {
      return c.rows_input(first + static_cast<int>(i));
    };
    for (size_t i = 0; i < count; ++i) {
      made.rows.insert(made.rows.end(), part(i).rows.begin(), part(i).rows.end());
    }
    Shape shape = head.value.shape();
    shape.set(0, static_cast<int64_t>(made.rows.size()));
    made.value.reset(dtype_of<T>(), shape, c.place());
    std::byte* to = made.value.raw();
    for (size_t i = 0; i < count; ++i) {
      stream_of(c).copy(part(i).value.raw(), to, part(i).value.bytes());
      to += part(i).value.bytes();
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_join(PrepareContext& context) {
  const size_t count = context.input_count("X");
  const int first = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) { join_rows<T>(c, first, count, out); });
}

// Some dense, some selected rows: a dense sum, input by input.
template <class T>
std::unique_ptr<Prepared> prepare_mixed_sum(PrepareContext& context, const Shape& shape) {
  const size_t count = context.input_count("X");
  const int first = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=, groups = UploadedGroups()](const KernelContext& c) mutable {
    Tensor total(dtype_of<T>(), shape, c.place());  // the output may be one of the inputs
    T* sums = reinterpret_cast<T*>(total.raw());
    const RawStream stream = stream_of(c).raw();
    fill<T>(stream, T{}, sums, total.numel());
    for (size_t i = 0; i < count; ++i) {
      const int at = first + static_cast<int>(i);
      if (const auto* part = std::get_if<SelectedRows>(&c.input_value(at))) {
        groups.group(part->rows, shape[0]);
        add_groups<T>(stream, values_of<T>(*part, groups.put(c)), sums);
      } else {
        tree_sum<T>(stream, {.count = 2, .arrays = {sums, c.in<T>(at)}}, sums, total.numel());
      }
    }
    c.output_value(out) = std::move(total);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_sum(PrepareContext& context) {
  size_t sparse = 0;
  std::optional<Shape> dense;
  for (size_t i = 0; i < context.input_count("X"); ++i) {
    const ValueSpec& x = context.in("X", i);
    if (x.kind == ValueKind::kSelectedRows) {
      ++sparse;
    } else if (x.kind == ValueKind::kTensor) {
      dense = x.shape;
    }
  }
  if (sparse == 0) return nullptr;
  return dense ? prepare_mixed_sum<T>(context, *dense) : prepare_join<T>(context);
}

template <class T>
std::unique_ptr<Prepared> prepare_merge(PrepareContext& context) {
  require_rows(context);
  return prepare_merged<T>(context, [](const KernelContext&, T*, int64_t) {});
}

template <class T>
std::unique_ptr<Prepared> prepare_values(PrepareContext& context) {
  require_rows(context);
  const int from = context.input("X");
  const int out = context.set_output("Out", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const Tensor& values = c.rows_input(from).value;
    stream_of(c).copy(values.raw(), c.output(out).raw(), values.bytes());
  });
}

// Nothing is added, since a bias would belong to every row.
template <class T>
std::unique_ptr<Prepared> prepare_scale(PrepareContext& context) {
  const auto attrs = context.attrs<ScaleAttrs>();
  if (!takes_rows(context) || attrs.bias != 0) return nullptr;
  const int factor = optional_scalar_input<T>(context, "ScaleTensor");
  const int x = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) {
    fill_rows(c, x, 1, out, [&](SelectedRows& made) {
      const SelectedRows& source = c.rows_input(x);
      made.rows = source.rows;
      made.height = source.height;
      made.value.reset(dtype_of<T>(), source.value.shape(), c.place());
      const ScaleArgs<T> args = {.scale = static_cast<T>(attrs.scale),
                                 .factor = factor >= 0 ? c.in<T>(factor) : nullptr};
      scale<T>(stream_of(c).raw(), args, reinterpret_cast<const T*>(source.value.raw()),
               reinterpret_cast<T*>(made.value.raw()), made.value.numel());
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip(PrepareContext& context) {
  if (!takes_rows(context)) return nullptr;
  const auto attrs = context.attrs<ClipAttrs>();
  const int min = optional_scalar_input<T>(context, "Min");
  const int max = optional_scalar_input<T>(context, "Max");
  return prepare_merged<T>(context, [=](const KernelContext& c, T* values, int64_t n) {
    const Scalar<T> low{.value = static_cast<T>(attrs.min),
                        .tensor = min >= 0 ? c.in<T>(min) : nullptr};
    const Scalar<T> high{.value = static_cast<T>(attrs.max),
                         .tensor = max >= 0 ? c.in<T>(max) : nullptr};
    clip<T>(stream_of(c).raw(), low, high, values, values, n);
  });
}

// By one number, as clipping by the global norm does.
template <class T>
std::unique_ptr<Prepared> prepare_scaled(PrepareContext& context) {
  if (!takes_rows(context)) return nullptr;
  const int y = row_factor_input(context, dtype_of<T>());
  return prepare_merged<T>(context, [=](const KernelContext& c, T* values, int64_t n) {
    scale<T>(stream_of(c).raw(), {.scale = T{1}, .factor = c.in<T>(y)}, values, values, n);
  });
}

}  // namespace

void register_rows(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_first(op, DeviceKind::kCuda, dtype_of<T>(),
                      {.name = "rows", .prepare = prepare, .takes_rows = true});
    };
    list("sum", prepare_sum<T>);
    list("scale", prepare_scale<T>);
    list("clip", prepare_clip<T>);
    list("elementwise_mul", prepare_scaled<T>);
    list("merge_selected_rows", prepare_merge<T>);
    list("get_tensor_from_selected_rows", prepare_values<T>);
  });
}

}  // namespace fleet::fluid::cuda
