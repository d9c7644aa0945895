// Sums and means. The order of every sum is fixed by shapes alone.
#include "fluid/ops/math/reduce.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/math/broadcast.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_copy.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_mean(PrepareContext& context) {
  const int64_t n = context.in("X").shape.numel();
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{1}, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    *c.out<T>(out) = sum_of(c.tiles(), c.in<T>(x), n) / static_cast<T>(n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_mean_grad(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  context.require(context.in("Out@GRAD").shape.numel() == 1, "Out@GRAD", "one element",
                  context.in("Out@GRAD").shape.to_string());
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    fill_in_tiles(c.tiles(), c.out<T>(out), n, *c.in<T>(grad) / static_cast<T>(n));
  });
}

// The sum over contributors: the tree over their positions (base/shard_tree.h).
template <class T>
std::unique_ptr<Prepared> prepare_sum(PrepareContext& context) {
  const size_t count = context.input_count("X");
  const Shape shape = context.in("X").shape;
  for (size_t i = 1; i < count; ++i) {
    const ValueSpec& x = context.in("X", i);
    context.require(x.kind == ValueKind::kTensor && x.dtype == dtype_of<T>() && x.shape == shape,
                    "X", str_cat("equal shapes and types, ", shape), x.shape.to_string());
  }
  const int64_t n = shape.numel();
  const int first = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  std::vector<const T*> arrays(count);
  return make_prepared([=,
                        tree = TreeSum(static_cast<int>(count))](const KernelContext& c) mutable {
    for (size_t i = 0; i < count; ++i) arrays[i] = c.in<T>(first + static_cast<int>(i));
    T* outs = c.out<T>(out);
    c.tiles().split(n, static_cast<int64_t>(count), [&](int64_t begin, int64_t end) {
      const auto parts = reinterpret_cast<const T**>(tile_scratch(count * sizeof(const T*)));
      for (size_t i = 0; i < count; ++i) parts[i] = arrays[i] + begin;
      tree(std::span<const T* const>(parts, count), outs + begin, static_cast<size_t>(end - begin));
    });
  });
}

// Which dimensions of x go, and what is left.
struct Reduction {
  Shape x;
  Shape out;
  Shape kept;         // out, with dimensions of 1 where x has others
  int64_t count = 1;  // elements that make one

  bool everything() const { return out.numel() == 1 && count == x.numel(); }
  // Elements of x, and as the y of the walk those of out that they become.
  Broadcast walk() const { return {x, x, kept, -1}; }
};

Reduction reduction_of(const PrepareContext& context) {
  const auto attrs = context.attrs<ReduceAttrs>();
  Reduction r = {.x = context.in("X").shape, .out = {}, .kept = {}};
  if (r.x.rank() == 0) r.x = Shape{1};
  const int rank = r.x.rank();
  std::set<int> dims;
  for (int dim : attrs.dim) dims.insert(dim < 0 ? dim + rank : dim);
  for (int i = 0; i < rank; ++i) {
    const bool gone = attrs.reduce_all || dims.contains(i);
    if (gone) r.count *= r.x[i];
    if (!gone || attrs.keep_dim) r.out.push_back(gone ? 1 : r.x[i]);
    r.kept.push_back(gone ? 1 : r.x[i]);
  }
  if (r.out.rank() == 0) r.out.push_back(1);
  return r;
}

// How elements become one: from `start`, a whole row, or a row into as many results.
template <class T>
struct Reducer {
  T start;
  bool by_rows;  // the order counts: rows_first
  T (*row)(T start, const T* x, int64_t n);
  void (*into)(T* out, const T* x, int64_t n);
};

struct SumStep {
  template <class T>
  static T join(T a, T b) {
    return a + b;
  }
};
struct ProdStep {
  template <class T>
  static T join(T a, T b) {
    return a * b;
  }
};
// What is not a number wins.
struct MaxStep {
  template <class T>
  static T join(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct MinStep {
  template <class T>
  static T join(T a, T b) {
    return b < a || b != b ? b : a;
  }
};
struct AllStep {
  static bool join(bool a, bool b) { return a && b; }
};
struct AnyStep {
  static bool join(bool a, bool b) { return a || b; }
};

template <class Step, class T>
T row_of(T start, const T* x, int64_t n) {
  if constexpr (std::is_same_v<Step, SumStep>) {
    return start + sum_of(x, n);
  } else {
    for (int64_t i = 0; i < n; ++i) start = Step::join(start, x[i]);
    return start;
  }
}

template <class Step, class T>
void row_into(T* out, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = Step::join(out[i], x[i]);
}

template <class Step, class T>
Reducer<T> reducer(T start) {
  return {start, std::is_same_v<Step, SumStep>, row_of<Step, T>, row_into<Step, T>};
}

// Rows whose sums come first: a sum of everything is that of the sums of its rows, so that rows
// which lie on different servers add up to the same bits. 0 where one pass does.
int64_t rows_first(const Reduction& r) {
  return r.everything() && r.x.rank() > 1 ? r.x.numel(0, r.x.rank() - 1) : 0;
}

// Into numbers of which the first is that of element `begin`.
template <class T>
void reduce(const Broadcast& walk, const Reducer<T>& step, const T* xs, T* outs, int64_t begin) {
  walk.rows([&](int64_t at, int64_t, int64_t position, int64_t n, int64_t, int64_t moves) {
    T* to = outs + (position - begin);
    if (moves == 0) {
      *to = step.row(*to, xs + at, n);
    } else {
      step.into(to, xs + at, n);
    }
  });
}

// The whole becomes one number.
template <class T>
T reduce_all(const Tiles& tiles, const Reducer<T>& step, const T* xs, int64_t n) {
  return join_parts<T>(
      tiles, n, 1,
      [&](int64_t begin, int64_t end) { return step.row(step.start, xs + begin, end - begin); },
      [&](const T* parts, int64_t count) { return step.row(step.start, parts, count); });
}

template <class T>
void reduce(const Tiles& tiles, const Reduction& r, const Broadcast& walk, const Reducer<T>& step,
            const T* xs, T* outs) {
  if (r.everything()) {
    *outs = reduce_all(tiles, step, xs, r.count);
  } else {
    join_walk(
        walk, tiles, false, r.out.numel(), step.start, outs,
        [&](const Broadcast& part, T* to, int64_t begin) { reduce(part, step, xs, to, begin); },
        step.into);
  }
}

// Reads elements [begin, end) of another type as T.
template <class T>
using CastFrom = void (*)(const std::byte* from, int64_t begin, int64_t end, T* to);

template <class From, class T>
constexpr CastFrom<T> cast_from() {
  if constexpr (std::is_same_v<From, T>) {
    return nullptr;
  } else {
    return [](const std::byte* from, int64_t begin, int64_t end, T* to) {
      const auto* xs = reinterpret_cast<const From*>(from);
      for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(xs[i]);
    };
  }
}

// With `cast`, elements are cast first.
template <class T>
std::unique_ptr<Prepared> prepare_reduce(PrepareContext& context, const Reducer<T>& step, bool mean,
                                         CastFrom<T> cast) {
  const Reduction r = reduction_of(context);
  const Broadcast walk = r.walk();
  const int64_t n = r.x.numel();
  const int64_t rows = step.by_rows ? rows_first(r) : 0;
  const auto room = static_cast<size_t>(rows + (cast == nullptr ? 0 : n));
  const int x = context.input("X");
  const int out = context.set_output("Out", r.out, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* outs = c.out<T>(out);
    const T* xs = reinterpret_cast<const T*>(c.input(x).raw());
    T* const sums = reinterpret_cast<T*>(c.scratch().get(room * sizeof(T)));
    if (cast != nullptr) {
      const std::byte* from = c.input(x).raw();
      c.tiles().split(n, 1,
                      [&](int64_t begin, int64_t end) { cast(from, begin, end, sums + rows); });
      xs = sums + rows;
    }
    if (rows > 0) {
      const int64_t length = n / rows;
      c.tiles().split(rows, length, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) sums[i] = step.row(T{}, xs + i * length, length);
      });
      *outs = reduce_all<T>(c.tiles(), step, sums, rows);
    } else {
      reduce(c.tiles(), r, walk, step, xs, outs);
    }
    if (!mean) return;
    c.tiles().split(r.out.numel(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) outs[i] /= static_cast<T>(r.count);
    });
  });
}

template <class From>
void add_reduce(KernelTable& table, const char* type, auto reducer_of, bool mean = false) {
  table.add_last(
      type, DeviceKind::kCpu, dtype_of<From>(),
      {"loop", [=](PrepareContext& context) -> std::unique_ptr<Prepared> {
         const std::string name = context.attrs<ReduceAttrs>().out_dtype;
         const DType wanted = name.empty() ? dtype_of<From>() : parse_dtype(name);
         std::unique_ptr<Prepared> prepared;
         for_types<float, double, int32_t, int64_t>([&]<class To>(std::type_identity<To> to) {
           if (wanted != dtype_of<To>()) return;
           prepared = prepare_reduce<To>(context, reducer_of(to), mean, cast_from<From, To>());
         });
         return prepared;
       }});
}

// f(first element of x, its position in out, step of the position, length) for rows, in tiles.
template <class F>
void each_row(const KernelContext& c, const Broadcast& walk, const F& f,
              Broadcast::Apart apart = Broadcast::Apart::kOut) {
  walk.split(c.tiles(), 1, apart, [&](const Broadcast& part) {
    part.rows([&](int64_t at, int64_t, int64_t position, int64_t length, int64_t, int64_t step) {
      f(at, position, step, length);
    });
  });
}

template <class T, bool Mean>
std::unique_ptr<Prepared> prepare_reduce_grad(PrepareContext& context) {
  const Reduction r = reduction_of(context);
  context.require(context.in("Out@GRAD").shape.numel() == r.out.numel(), "Out@GRAD",
                  r.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  return make_prepared([=, walk = r.walk()](const KernelContext& c) {
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    const T divisor = Mean ? static_cast<T>(r.count) : T{1};
    each_row(c, walk, [&](int64_t at, int64_t position, int64_t step, int64_t length) {
      if (step == 0) {
        std::fill(outs + at, outs + at + length, grads[position] / divisor);
        return;
      }
      for (int64_t i = 0; i < length; ++i) outs[at + i] = grads[position + i] / divisor;
    });
  });
}

// What gradients of max, min and prod look at.
struct WithOut {
  Reduction r;
  Broadcast walk;
  int x = -1;
  int value = -1;
  int grad = -1;
  int out = -1;
};

template <class T>
WithOut with_out(PrepareContext& context) {
  const Reduction r = reduction_of(context);
  WithOut w = {.r = r, .walk = r.walk()};
  for (const char* slot : {"Out", "Out@GRAD"}) {
    context.require(context.in(slot).shape.numel() == w.r.out.numel(), slot, w.r.out.to_string(),
                    context.in(slot).shape.to_string());
  }
  w.x = context.input("X");
  w.value = context.input("Out");
  w.grad = context.input("Out@GRAD");
  w.out = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  return w;
}

// Every element that is the largest (smallest) gets the whole gradient.
template <class T>
std::unique_ptr<Prepared> prepare_extreme_grad(PrepareContext& context) {
  const WithOut w = with_out<T>(context);
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(w.x);
    const T* values = c.in<T>(w.value);
    const T* grads = c.in<T>(w.grad);
    T* outs = c.out<T>(w.out);
    each_row(c, w.walk, [&](int64_t at, int64_t position, int64_t step, int64_t length) {
      for (int64_t i = 0; i < length; ++i) {
        const int64_t p = position + i * step;
        outs[at + i] = xs[at + i] == values[p] ? grads[p] : T{};
      }
    });
  });
}

// The product of the others: without zeros the whole over the element; with one zero only it has a
// gradient.
template <class T>
std::unique_ptr<Prepared> prepare_prod_grad(PrepareContext& context) {
  const WithOut w = with_out<T>(context);
  const auto n = static_cast<size_t>(w.r.out.numel());
  return make_prepared([=, zeros = std::vector<int64_t>(n),
                        others = std::vector<T>(n)](const KernelContext& c) mutable {
    const T* xs = c.in<T>(w.x);
    const T* values = c.in<T>(w.value);
    const T* grads = c.in<T>(w.grad);
    T* outs = c.out<T>(w.out);
    std::fill(zeros.begin(), zeros.end(), 0);
    std::fill(others.begin(), others.end(), T{1});
    each_row(
        c, w.walk,
        [&](int64_t at, int64_t position, int64_t step, int64_t length) {
          for (int64_t i = 0; i < length; ++i) {
            const auto p = static_cast<size_t>(position + i * step);
            if (xs[at + i] == T{}) {
              ++zeros[p];
            } else {
              others[p] *= xs[at + i];
            }
          }
        },
        Broadcast::Apart::kY);
    each_row(c, w.walk, [&](int64_t at, int64_t position, int64_t step, int64_t length) {
      for (int64_t i = 0; i < length; ++i) {
        const int64_t p = position + i * step;
        const auto k = static_cast<size_t>(p);
        const T x = xs[at + i];
        const T alone = zeros[k] == 1 && x == T{} ? others[k] : T{};
        outs[at + i] = grads[p] * (zeros[k] == 0 ? values[p] / x : alone);
      }
    });
  });
}

template <class T>
constexpr T kLowest = std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                           : std::numeric_limits<T>::lowest();
template <class T>
constexpr T kHighest = std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                            : std::numeric_limits<T>::max();

template <class From>
void add_reductions(KernelTable& table) {
  const auto sum = []<class T>(std::type_identity<T>) { return reducer<SumStep>(T{}); };
  add_reduce<From>(table, "reduce_sum", sum);
  add_reduce<From>(table, "reduce_mean", sum, true);
  if constexpr (!std::is_same_v<From, bool>) {
    add_reduce<From>(table, "reduce_max",
                     []<class T>(std::type_identity<T>) { return reducer<MaxStep>(kLowest<T>); });
    add_reduce<From>(table, "reduce_min",
                     []<class T>(std::type_identity<T>) { return reducer<MinStep>(kHighest<T>); });
    add_reduce<From>(table, "reduce_prod",
                     []<class T>(std::type_identity<T>) { return reducer<ProdStep>(T{1}); });
  }
}

}  // namespace

void register_reduce(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add("mean", prepare_mean<T>);
    add("mean_grad", prepare_mean_grad<T>);
    add("reduce_sum_grad", prepare_reduce_grad<T, false>);
    add("reduce_mean_grad", prepare_reduce_grad<T, true>);
    add("reduce_max_grad", prepare_extreme_grad<T>);
    add("reduce_min_grad", prepare_extreme_grad<T>);
    add("reduce_prod_grad", prepare_prod_grad<T>);
  });
  for_types<bool, int32_t, int64_t, float, double>(
      [&table]<class T>(std::type_identity<T>) { add_reductions<T>(table); });
  table.add_last("reduce_all", DeviceKind::kCpu, DType::kBool,
                 {"loop", [](PrepareContext& c) {
                    return prepare_reduce<bool>(c, reducer<AllStep>(true), false, nullptr);
                  }});
  table.add_last("reduce_any", DeviceKind::kCpu, DType::kBool,
                 {"loop", [](PrepareContext& c) {
                    return prepare_reduce<bool>(c, reducer<AnyStep>(false), false, nullptr);
                  }});
  for_types<float, double, int64_t>([&table]<class T>(std::type_identity<T>) {
    table.add_last("sum", DeviceKind::kCpu, dtype_of<T>(),
                   {.name = "tree",
                    .prepare = prepare_sum<T>,
                    .images = ImageOrder::kElements,
                    .in_place = true});
  });
}

}  // namespace fleet::fluid::cpu
