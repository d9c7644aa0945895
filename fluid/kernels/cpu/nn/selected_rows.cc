// Sums and merges of selected rows. Tensors among them are dense rows 0, 1, ….
#include "fluid/ops/nn/selected_rows.h"

#include <algorithm>

#include "base/strings.h"
#include "fluid/kernels/accumulate.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/column_tiles.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/ops/math/scale.h"

namespace fleet::fluid::cpu {
namespace {

// All rows one after the other, as they come.
template <class T>
void join_rows(const KernelContext& c, int first, size_t count, int out) {
  const SelectedRows& head = c.rows_input(first);
  int64_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    total += static_cast<int64_t>(c.rows_input(first + static_cast<int>(i)).rows.size());
  }
  // The output may be one of the inputs.
  std::vector<int64_t> numbers;
  Shape shape = head.value.shape();
  shape.set(0, total);
  Tensor values(dtype_of<T>(), shape);
  T* to = values.data<T>();
  for (size_t i = 0; i < count; ++i) {
    const SelectedRows& part = c.rows_input(first + static_cast<int>(i));
    if ((part.height < 0) != (head.height < 0)) {
      require_height(part.height < 0 ? part : head, "op 'sum', slot 'X', rows beside others");
    }
    numbers.insert(numbers.end(), part.rows.begin(), part.rows.end());
    if (part.value.numel() == 0) continue;
    copy_in_tiles(c.tiles(), part.value.raw(), to, part.value.bytes());
    to += part.value.numel();
  }
  const int64_t height = head.height;
  SelectedRows joined{.rows = std::move(numbers), .height = height, .value = std::move(values)};
  c.output_value(out) = std::move(joined);
}

int64_t checked_row(int64_t row, const Shape& shape) {
  if (row >= 0 && row < shape[0]) return row;
  throw_error(ErrorCode::kShapeMismatch, {.what = "selected rows name a row that is not there",
                                          .where = "op 'sum', slot 'X'",
                                          .expected = str_cat("rows of ", shape),
                                          .got = str_cat(row),
                                          .fix = "check the ids that were looked up"});
}

template <class T>
void add_rows(const Tiles& tiles, const SelectedRows& part, const Shape& shape, T* to) {
  require_height(part, "op 'sum', slot 'X', rows beside a dense tensor");
  const int64_t width = row_width(part.value);
  const auto count = static_cast<int64_t>(part.rows.size());
  const T* from = part.value.data<T>();
  split_columns(tiles, count, width, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < count; ++i) {
      T* sum = to + checked_row(part.rows[static_cast<size_t>(i)], shape) * width;
      const T* value = from + i * width;
      for (int64_t k = begin; k < end; ++k) sum[k] += value[k];
    }
  });
}

// Some dense, some selected rows: a dense sum, input by input.
template <class T>
std::unique_ptr<Prepared> prepare_mixed_sum(PrepareContext& context, const Shape& shape) {
  const size_t count = context.input_count("X");
  const int first = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) {
    Tensor total(dtype_of<T>(), shape);
    T* sums = total.data<T>();
    zero_in_tiles(c.tiles(), sums, total.bytes());
    for (size_t i = 0; i < count; ++i) {
      const Value& value = c.input_value(first + static_cast<int>(i));
      if (const auto* rows = std::get_if<SelectedRows>(&value)) {
        add_rows(c.tiles(), *rows, shape, sums);
        continue;
      }
      const T* from = c.in<T>(first + static_cast<int>(i));
      c.tiles().split(total.numel(), 1, [=](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) sums[k] += from[k];
      });
    }
    c.output_value(out) = std::move(total);
  });
}

// Arrays: element by element; an element that is missing counts as zero.
std::unique_ptr<Prepared> prepare_array_sum(PrepareContext& context) {
  const size_t count = context.input_count("X");
  const int first = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) {
    TensorArray sums;
    for (size_t i = 0; i < count; ++i) {
      const auto* array = std::get_if<TensorArray>(&c.input_value(first + static_cast<int>(i)));
      if (array == nullptr) continue;
      if (sums.size() < array->size()) sums.resize(array->size());
      for (size_t k = 0; k < array->size(); ++k) accumulate((*array)[k], sums[k], c.tiles());
    }
    c.output_value(out) = std::move(sums);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_sum(PrepareContext& context) {
  const size_t count = context.input_count("X");
  if (context.in("X").kind == ValueKind::kTensorArray) return prepare_array_sum(context);
  size_t sparse = 0;
  const ValueSpec* dense = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const ValueSpec& x = context.in("X", i);
    if (x.kind == ValueKind::kSelectedRows) {
      ++sparse;
    } else if (x.kind == ValueKind::kTensor) {
      dense = &x;
    }
  }
  if (sparse == 0) return nullptr;
  if (dense != nullptr) return prepare_mixed_sum<T>(context, dense->shape);
  const int first = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) { join_rows<T>(c, first, count, out); });
}

template <class T>
std::unique_ptr<Prepared> prepare_merge(PrepareContext& context) {
  require_rows(context);
  const int from = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=, merged = MergedRows<T>()](const KernelContext& c) mutable {
    const SelectedRows& source = c.rows_input(from);
    merged.merge(source, source.height, row_width(source.value), c.tiles());
    SelectedRows result;
    result.height = source.height;
    result.rows = merged.rows();
    Shape shape = source.value.shape();
    shape.set(0, static_cast<int64_t>(merged.count()));
    result.value = Tensor(dtype_of<T>(), shape);
    copy_in_tiles(c.tiles(), merged.values(), result.value.raw(), result.value.bytes());
    c.output_value(out) = std::move(result);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_values(PrepareContext& context) {
  require_rows(context);
  const int from = context.input("X");
  const int out = context.set_output("Out", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    copy_elements(c.tiles(), c.rows_input(from).value, c.output(out));
  });
}

// Of selected rows; nothing is added, since a bias would belong to every row.
template <class T>
std::unique_ptr<Prepared> prepare_scale(PrepareContext& context) {
  const auto attrs = context.attrs<ScaleAttrs>();
  if (context.in("X").kind != ValueKind::kSelectedRows || attrs.bias != 0) return nullptr;
  const int given = optional_scalar_input<T>(context, "ScaleTensor");
  const int from = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) {
    const T factor = given >= 0 ? *c.in<T>(given) : static_cast<T>(attrs.scale);
    const SelectedRows& source = c.rows_input(from);
    SelectedRows result{.rows = source.rows, .height = source.height, .value = {}};
    result.value = Tensor(dtype_of<T>(), source.value.shape());
    const T* x = source.value.data<T>();
    T* to = result.value.data<T>();
    c.tiles().split(result.value.numel(), 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = x[i] * factor;
    });
    c.output_value(out) = std::move(result);
  });
}

// No rows: those that are not named are zero.
template <class T>
std::unique_ptr<Prepared> prepare_no_rows(PrepareContext& context) {
  if (!takes_rows(context)) return nullptr;
  const int from = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=](const KernelContext& c) {
    const SelectedRows& source = c.rows_input(from);
    Shape shape = source.value.shape();
    shape.set(0, 0);
    c.output_value(out) =
        SelectedRows{.rows = {}, .height = source.height, .value = Tensor(dtype_of<T>(), shape)};
  });
}

}  // namespace

void register_selected_rows(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const DType dtype = dtype_of<T>();
    const auto add_first = [&](const char* op, auto prepare) {
      table.add_first(
          op, DeviceKind::kCpu, dtype,
          {.name = "rows", .prepare = prepare, .images = ImageOrder::kElements, .in_place = true});
    };
    add_first("sum", prepare_sum<T>);
    add_first("scale", prepare_scale<T>);
    add_first("fill_zeros_like", prepare_no_rows<T>);
    table.add_last("merge_selected_rows", DeviceKind::kCpu, dtype, {"sort", prepare_merge<T>});
    table.add_last("get_tensor_from_selected_rows", DeviceKind::kCpu, dtype,
                   {"copy", prepare_values<T>});
  });
}

}  // namespace fleet::fluid::cpu
