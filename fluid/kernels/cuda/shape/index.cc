// Gathers and scatters of rows, and what goes along one axis.
#include <array>

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/cuda/shape/index_loops.h"
#include "fluid/kernels/shape/axis_ops.h"
#include "fluid/kernels/shape/row_ops.h"

namespace fleet::fluid::cuda {
namespace {

RowIndices indices_of(const KernelContext& c, const IndexInput& index, int64_t rows) {
  return {
      .values = c.input(index.input).raw(), .wide = index.wide, .count = index.count, .rows = rows};
}

Rows rows_of(const AxisView& view) {
  return {.outer = view.outer, .n = view.n, .inner = view.inner};
}

template <class T>
std::unique_ptr<Prepared> prepare_gather(PrepareContext& context) {
  const GatherRows g = gather_of(context);
  return make_prepared([=](const KernelContext& c) {
    take_rows<T>(stream_of(c).raw(), indices_of(c, g.index, g.rows), g.width, c.in<T>(g.from),
                 c.out<T>(g.out));
  });
}

// Equal indices are added in their order.
template <class T>
void add_to_rows(const KernelContext& c, const RowIndices& index, int64_t width, const T* from,
                 T* to) {
  Stream& stream = stream_of(c);
  const size_t bytes = sort_bytes(index.count);
  auto* memory =
      bytes == 0 ? nullptr : stream.template scratch<std::byte>(static_cast<int64_t>(bytes));
  add_rows<T>(stream.raw(), index, width, from, to, memory);
}

// Of equal indices, the last counts.
template <class T>
void put_rows_last(const KernelContext& c, const RowIndices& index, int64_t width, const T* from,
                   T* to) {
  Stream& stream = stream_of(c);
  auto* last = stream.template scratch<int32_t>(index.rows);
  last_of_rows(stream.raw(), index, last);
  put_last_rows<T>(stream.raw(), index, width, last, from, to);
}

template <class T>
std::unique_ptr<Prepared> prepare_gather_grad(PrepareContext& context) {
  const GatherRows g = gather_back_of(context);
  return make_prepared([=](const KernelContext& c) {
    const RowIndices index = indices_of(c, g.index, g.rows);
    fill<T>(stream_of(c).raw(), T{}, c.out<T>(g.out), g.rows * g.width);
    const auto put = g.overwrite ? put_rows_last<T> : add_to_rows<T>;
    put(c, index, g.width, c.in<T>(g.from), c.out<T>(g.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_scatter(PrepareContext& context) {
  const ScatterRows s = scatter_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const RowIndices index = indices_of(c, s.index, s.rows);
    stream_of(c).copy(c.input(s.x).raw(), c.output(s.out).raw(), c.output(s.out).bytes());
    if (s.overwrite)
      return put_rows_last<T>(c, index, s.width, c.in<T>(s.updates), c.out<T>(s.out));
    zero_named_rows<T>(stream_of(c).raw(), index, s.width, c.out<T>(s.out));
    add_to_rows<T>(c, index, s.width, c.in<T>(s.updates), c.out<T>(s.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_scatter_grad(PrepareContext& context) {
  const ScatterRowsBack s = scatter_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    const RowIndices index = indices_of(c, s.index, s.rows);
    if (s.x_grad >= 0) {
      stream.copy(c.input(s.grad).raw(), c.output(s.x_grad).raw(), c.output(s.x_grad).bytes());
      if (!s.keeps_named_rows) {
        zero_named_rows<T>(stream.raw(), index, s.width, c.out<T>(s.x_grad));
      }
    }
    if (s.update_grad < 0) return;
    if (!s.last_only) {
      return take_rows<T>(stream.raw(), index, s.width, c.in<T>(s.grad), c.out<T>(s.update_grad));
    }
    auto* last = stream.template scratch<int32_t>(s.rows);
    last_of_rows(stream.raw(), index, last);
    take_last_rows<T>(stream.raw(), index, s.width, last, c.in<T>(s.grad), c.out<T>(s.update_grad));
  });
}

template <class Index>
std::unique_ptr<Prepared> prepare_one_hot(PrepareContext& context) {
  const OneHotRows rows = one_hot_of(context);
  const IndexInput index{
      .input = rows.x, .wide = sizeof(Index) == sizeof(int64_t), .count = rows.count};
  std::unique_ptr<Prepared> prepared;
  cpu::for_types<float, double, int32_t, int64_t>([&]<class T>(std::type_identity<T>) {
    if (rows.dtype != dtype_of<T>()) return;
    prepared = make_prepared([=](const KernelContext& c) {
      one_hot<T>(stream_of(c).raw(), indices_of(c, index, rows.depth), rows.allow_outside,
                 c.out<T>(rows.out));
    });
  });
  return prepared;
}

template <class T>
std::unique_ptr<Prepared> prepare_cumsum(PrepareContext& context) {
  const CumulativeSum s = cumsum_of(context, dtype_of<T>());
  const CumsumArgs args{.lines = rows_of(s.lines), .exclusive = s.exclusive, .reverse = s.reverse};
  return make_prepared([=](const KernelContext& c) {
    cumsum<T>(stream_of(c).raw(), args, c.in<T>(s.x), c.out<T>(s.out));
  });
}

template <class T, bool Largest>
std::unique_ptr<Prepared> prepare_arg(PrepareContext& context) {
  const ExtremePlaces e = extreme_places_of(context);
  return make_prepared([=](const KernelContext& c) {
    extreme_places<T>(stream_of(c).raw(), rows_of(e.lines), Largest, c.in<T>(e.x),
                      e.wide ? c.out<int64_t>(e.out) : nullptr,
                      e.wide ? nullptr : c.out<int32_t>(e.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_argsort(PrepareContext& context) {
  const SortedLines s = sorted_lines_of(context, dtype_of<T>());
  const SortArgs args{.lines = rows_of(s.lines), .descending = s.descending};
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    auto* order = stream.template scratch<int64_t>(sort_scratch(args.lines));
    sort_lines<T>(stream.raw(), args, c.in<T>(s.x), order, out_or_null<T>(c, s.out),
                  out_or_null<int64_t>(c, s.indices));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_argsort_grad(PrepareContext& context) {
  const SortedLinesBack s = sorted_lines_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    sort_lines_back<T>(stream_of(c).raw(), rows_of(s.lines), c.in<int64_t>(s.indices),
                       c.in<T>(s.grad), c.out<T>(s.out));
  });
}

std::unique_ptr<Prepared> prepare_shape(PrepareContext& context) {
  const Shape shape = context.in("Input").shape;
  SmallShape sizes;
  for (const int64_t size : shape.dims()) sizes.sizes[sizes.rank++] = static_cast<int32_t>(size);
  const int out = context.set_output("Out", Shape{shape.rank()}, DType::kInt32);
  return make_prepared(
      [=](const KernelContext& c) { write_shape(stream_of(c).raw(), sizes, c.out<int32_t>(out)); });
}

}  // namespace

void register_index(KernelTable& table) {
  const auto list = [&table]<class T>(std::type_identity<T>, const char* op, auto prepare) {
    table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
  };
  cpu::for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T> type) {
        list(type, "gather", prepare_gather<T>);
        list(type, "shape", prepare_shape);
      });
  cpu::for_types<int32_t, int64_t>([&]<class T>(std::type_identity<T> type) {
    list(type, "one_hot", prepare_one_hot<T>);
    list(type, "one_hot_v2", prepare_one_hot<T>);
  });
  cpu::for_types<int32_t, int64_t, float, double>([&]<class T>(std::type_identity<T> type) {
    list(type, "arg_max", prepare_arg<T, true>);
    list(type, "arg_min", prepare_arg<T, false>);
    list(type, "argsort", prepare_argsort<T>);
    list(type, "cumsum", prepare_cumsum<T>);
  });
  cpu::for_types<float, double>([&]<class T>(std::type_identity<T> type) {
    list(type, "argsort_grad", prepare_argsort_grad<T>);
    list(type, "gather_grad", prepare_gather_grad<T>);
    list(type, "scatter", prepare_scatter<T>);
    list(type, "scatter_grad", prepare_scatter_grad<T>);
  });
}

}  // namespace fleet::fluid::cuda
