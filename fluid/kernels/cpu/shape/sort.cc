// Ops along one axis that look for positions or go from element to element.
#include <algorithm>
#include <bit>
#include <numeric>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/kernels/cpu/tile_scratch.h"
#include "fluid/kernels/shape/axis_ops.h"

namespace fleet::fluid::cpu {
namespace {

// Calls f(line) for each line, in tiles; `cost` is that of an element.
template <class F>
void each_line(const KernelContext& c, const AxisView& view, int64_t cost, const F& f) {
  c.tiles().split(view.lines(), view.n * cost, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) f(line);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_cumsum(PrepareContext& context) {
  const CumulativeSum s = cumsum_of(context, dtype_of<T>());
  const AxisView view = s.lines;
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(s.x);
    T* outs = c.out<T>(s.out);
    each_line(c, view, 4, [&](int64_t line) {
      const int64_t start = view.start(line);
      T sum{};
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t at = start + (s.reverse ? view.n - 1 - j : j) * view.inner;
        const T value = xs[at];
        outs[at] = s.exclusive ? sum : sum + value;
        sum += value;
      }
    });
  });
}

template <class X, class Out>
void write_one_hot(const X* xs, const OneHotRows& rows, Out* outs, int64_t begin, int64_t end) {
  std::fill(outs + begin * rows.depth, outs + end * rows.depth, Out{});
  for (int64_t i = begin; i < end; ++i) {
    const auto at = static_cast<int64_t>(xs[i]);
    if (at >= 0 && at < rows.depth) {
      outs[i * rows.depth + at] = Out{1};
    } else if (!rows.allow_outside) {
      throw_error(ErrorCode::kFeed, {.what = "a value is not the index of a class",
                                     .where = "op one_hot, slot 'X'",
                                     .expected = str_cat("0 to ", rows.depth - 1),
                                     .got = str_cat(at),
                                     .fix = "correct it, give more depth, or allow_out_of_range"});
    }
  }
}

template <class X>
std::unique_ptr<Prepared> prepare_one_hot(PrepareContext& context) {
  const OneHotRows rows = one_hot_of(context);
  std::unique_ptr<Prepared> prepared;
  for_types<float, double, int32_t, int64_t>([&]<class Out>(std::type_identity<Out>) {
    if (rows.dtype != dtype_of<Out>()) return;
    prepared = make_prepared([=](const KernelContext& c) {
      c.tiles().split(rows.count, rows.depth, [&](int64_t begin, int64_t end) {
        write_one_hot(c.in<X>(rows.x), rows, c.out<Out>(rows.out), begin, end);
      });
    });
  });
  return prepared;
}

template <class T, bool Largest>
std::unique_ptr<Prepared> prepare_arg(PrepareContext& context) {
  const ExtremePlaces e = extreme_places_of(context);
  const AxisView view = e.lines;
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(e.x);
    each_line(c, view, 2, [&](int64_t line) {
      const T* values = xs + view.start(line);
      int64_t best = 0;
      for (int64_t j = 1; j < view.n; ++j) {
        const T a = values[j * view.inner];
        const T b = values[best * view.inner];
        if (Largest ? a > b : a < b) best = j;
      }
      if (e.wide) {
        c.out<int64_t>(e.out)[line] = best;
      } else {
        c.out<int32_t>(e.out)[line] = static_cast<int32_t>(best);
      }
    });
  });
}

// Equal elements keep their order; not-a-number last.
template <class T>
std::unique_ptr<Prepared> prepare_argsort(PrepareContext& context) {
  const SortedLines s = sorted_lines_of(context, dtype_of<T>());
  const AxisView view = s.lines;
  const int64_t cost = 8 * std::bit_width(static_cast<uint64_t>(view.n));
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(s.x);
    each_line(c, view, cost, [&](int64_t line) {
      const int64_t start = view.start(line);
      auto* const order = tile_scratch<int64_t>(view.n);
      std::iota(order, order + view.n, 0);
      std::stable_sort(order, order + view.n, [&](int64_t i, int64_t j) {
        const T a = xs[start + i * view.inner];
        const T b = xs[start + j * view.inner];
        if (a != a || b != b) return a == a;
        return s.descending ? a > b : a < b;
      });
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t from = order[j];
        const int64_t at = start + j * view.inner;
        if (s.out >= 0) c.out<T>(s.out)[at] = xs[start + from * view.inner];
        if (s.indices >= 0) c.out<int64_t>(s.indices)[at] = from;
      }
    });
  });
}

int64_t checked_place(int64_t place, int64_t n) {
  if (place >= 0 && place < n) return place;
  throw_error(ErrorCode::kFeed, {.what = "an index is outside of its line",
                                 .where = "op argsort_grad, slot 'Indices'",
                                 .expected = str_cat("0 to ", n - 1),
                                 .got = str_cat(place),
                                 .fix = "give the Indices that argsort made of X"});
}

template <class T>
std::unique_ptr<Prepared> prepare_argsort_grad(PrepareContext& context) {
  const SortedLinesBack s = sorted_lines_back_of(context, dtype_of<T>());
  const AxisView view = s.lines;
  return make_prepared([=](const KernelContext& c) {
    const auto* from = c.in<int64_t>(s.indices);
    const T* grads = c.in<T>(s.grad);
    T* outs = c.out<T>(s.out);
    fill_in_tiles(c.tiles(), outs, view.lines() * view.n, T{});
    each_line(c, view, 2, [&](int64_t line) {
      const int64_t start = view.start(line);
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t at = start + j * view.inner;
        outs[start + checked_place(from[at], view.n) * view.inner] = grads[at];
      }
    });
  });
}

}  // namespace

void register_sort(KernelTable& table) {
  const auto add = [&table]<class T>(std::type_identity<T>, const char* op, const auto& prepare) {
    table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
  };
  for_types<int32_t, int64_t, float, double>([&]<class T>(std::type_identity<T> type) {
    add(type, "cumsum", prepare_cumsum<T>);
    add(type, "arg_max", prepare_arg<T, true>);
    add(type, "arg_min", prepare_arg<T, false>);
    add(type, "argsort", prepare_argsort<T>);
  });
  const TensorAttribute depth{.name = "depth", .whole = "depth_tensor", .scalar = true};
  for_types<int32_t, int64_t>([&]<class T>(std::type_identity<T> type) {
    for (const char* op : {"one_hot", "one_hot_v2"}) {
      add(type, op, with_tensor_attributes(prepare_one_hot<T>, {depth}));
    }
  });
  for_types<float, double>([&]<class T>(std::type_identity<T> type) {
    add(type, "argsort_grad", prepare_argsort_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
