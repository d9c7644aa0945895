// Clipping of gradients of selected rows. Rows that occur several times are summed first: a bound
// on a gradient is a bound on the sum.
#include <algorithm>
#include <cmath>

#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/math/row_sums.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_scratch.h"
#include "fluid/ops/math/scale.h"

namespace fleet::fluid::cpu {
namespace {

// The merged rows of input `x`, with room for new values: `fill(values, count, out)` makes them.
template <class T, class Fill>
void replace_values(const KernelContext& c, int x, int out, MergedRows<T>& rows, const Fill& fill) {
  const auto& source = std::get<SelectedRows>(c.input_value(x));
  Shape shape = source.value.shape();
  const int64_t width = row_width(source.value);
  rows.merge(source, source.height, width, c.tiles());
  shape.set(0, static_cast<int64_t>(rows.count()));
  SelectedRows result;
  result.height = source.height;
  for (size_t i = 0; i < rows.count(); ++i) result.rows.push_back(rows.row(i));
  result.value = Tensor(dtype_of<T>(), shape);
  fill(rows.values(), static_cast<int64_t>(rows.count()), width, result.value.data<T>());
  c.output_value(out) = std::move(result);
}

template <class T>
void scale(const Tiles& tiles, const T* from, T factor, T* to, int64_t n) {
  tiles.split(n, 1, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = from[i] * factor;
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip(PrepareContext& context) {
  if (!takes_rows(context)) return nullptr;
  const auto attrs = context.attrs<ClipAttrs>();
  const int x = context.input("X");
  const int out = context.own_output("Out");
  const int min = optional_scalar_input<T>(context, "Min");
  const int max = optional_scalar_input<T>(context, "Max");
  return make_prepared([=, rows = MergedRows<T>()](const KernelContext& c) mutable {
    const T low = min >= 0 ? *c.in<T>(min) : static_cast<T>(attrs.min);
    const T high = max >= 0 ? *c.in<T>(max) : static_cast<T>(attrs.max);
    replace_values(c, x, out, rows, [=, &c](const T* values, int64_t count, int64_t width, T* to) {
      c.tiles().split(count * width, 1, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          to[i] = values[i] < low ? low : values[i] > high ? high : values[i];
        }
      });
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip_by_norm(PrepareContext& context) {
  if (!takes_rows(context)) return nullptr;
  const T max_norm = static_cast<T>(context.attrs<ClipByNormAttrs>().max_norm);
  const int x = context.input("X");
  const int sums = context.input("SquaredRowSums");
  const int out = context.own_output("Out");
  return make_prepared([=, rows = MergedRows<T>()](const KernelContext& c) mutable {
    replace_values(
        c, x, out, rows, [=, &c, &rows](const T* values, int64_t count, int64_t width, T* to) {
          const double squares =
              sums < 0 ? squared_sum(c.tiles(), values, count, width, rows.rows().data())
                       : sum_rows(c.in<double>(sums), c.input(sums).numel());
          const T norm = static_cast<T>(std::sqrt(squares));
          scale(c.tiles(), values, norm > max_norm ? max_norm / norm : T{1}, to, count * width);
        });
  });
}

// Rows that are not there have sums of zero.
template <class T>
std::unique_ptr<Prepared> prepare_squared_row_sums(PrepareContext& context) {
  if (!takes_rows(context)) return nullptr;
  const int x = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=, rows = MergedRows<T>()](const KernelContext& c) mutable {
    const auto& source = std::get<SelectedRows>(c.input_value(x));
    require_height(source, "op 'squared_row_sums', slot 'X'");
    const int64_t width = row_width(source.value);
    rows.merge(source, source.height, width, c.tiles());
    Tensor sums = Tensor::zeros(DType::kFloat64, {source.height});
    auto* of_rows = sums.data<double>();
    each_squared_row_sum(
        c.tiles(), rows.values(), static_cast<int64_t>(rows.count()), width,
        [&](int64_t i, double sum) { of_rows[rows.row(static_cast<size_t>(i))] = sum; });
    c.output_value(out) = std::move(sums);
  });
}

// As square and reduce_sum of the rows' values have it, but for the order of rows.
template <class T>
std::unique_ptr<Prepared> prepare_marked_row_sums(PrepareContext& context) {
  require_rows(context);
  const int x = context.input("X");
  const int out = context.own_output("Out");
  return make_prepared([=, rows = MergedRows<T>()](const KernelContext& c) mutable {
    const auto& source = std::get<SelectedRows>(c.input_value(x));
    require_height(source, "op 'marked_row_sums', slot 'X'");
    const int64_t width = row_width(source.value);
    rows.merge(source, source.height, width, c.tiles());
    Tensor sums = Tensor::zeros(dtype_of<T>(), {source.height, 2});
    T* of_rows = sums.data<T>();
    const auto count = static_cast<int64_t>(rows.count());
    c.tiles().split(count, 2 * width, [&](int64_t begin, int64_t end) {
      T* squares = tile_scratch<T>(width);
      for (int64_t i = begin; i < end; ++i) {
        const T* values = rows.values() + i * width;
        std::transform(values, values + width, squares, [](T v) { return v * v; });
        T* sum = of_rows + 2 * rows.row(static_cast<size_t>(i));
        sum[0] = sum_of(squares, width);
        sum[1] = T{1};
      }
    });
    c.output_value(out) = std::move(sums);
  });
}

// By one number, as clipping by the global norm does.
template <class T>
std::unique_ptr<Prepared> prepare_scaled(PrepareContext& context) {
  if (!takes_rows(context)) return nullptr;
  const int x = context.input("X");
  const int y = row_factor_input(context, dtype_of<T>());
  const int out = context.own_output("Out");
  return make_prepared([=, rows = MergedRows<T>()](const KernelContext& c) mutable {
    const T factor = *c.in<T>(y);
    replace_values(c, x, out, rows, [=, &c](const T* values, int64_t count, int64_t width, T* to) {
      scale(c.tiles(), values, factor, to, count * width);
    });
  });
}

}  // namespace

void register_sparse_clip(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_first(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "rows", .prepare = prepare});
    };
    add("clip", prepare_clip<T>);
    add("clip_by_norm", prepare_clip_by_norm<T>);
    add("elementwise_mul", prepare_scaled<T>);
    add("squared_row_sums", prepare_squared_row_sums<T>);
    add("marked_row_sums", prepare_marked_row_sums<T>);
  });
}

}  // namespace fleet::fluid::cpu
