// Sums and means. The order of every sum is fixed by shapes alone.
#include "fluid/ops/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

// Sixteen interleaved partial sums, then a tree over them: an order that vector registers like.
template <class T>
T sum_of(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane];
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += x[i];
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

template <class T>
std::unique_ptr<Prepared> prepare_mean(PrepareContext& context) {
  const int64_t n = context.in("X").shape.numel();
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{1}, dtype_of<T>());
  return make_prepared(
      [=](const KernelContext& c) { *c.out<T>(out) = sum_of(c.in<T>(x), n) / static_cast<T>(n); });
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
    T* outs = c.out<T>(out);
    std::fill(outs, outs + n, *c.in<T>(grad) / static_cast<T>(n));
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
  const auto n = static_cast<size_t>(shape.numel());
  const int first = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  std::vector<const T*> arrays(count);
  return make_prepared(
      [=, tree = TreeSum(static_cast<int>(count))](const KernelContext& c) mutable {
        for (size_t i = 0; i < count; ++i) arrays[i] = c.in<T>(first + static_cast<int>(i));
        tree(std::span<const T* const>(arrays), c.out<T>(out), n);
      });
}

// Which dimensions of x go, and what is left.
struct Reduction {
  Shape x;
  Shape out;
  std::vector<bool> gone;
  int64_t count = 1;  // elements that make one
};

Reduction reduction_of(const PrepareContext& context) {
  const auto attrs = context.attrs<ReduceAttrs>();
  Reduction r = {.x = context.in("X").shape, .out = {}, .gone = {}};
  if (r.x.rank() == 0) r.x = Shape{1};
  const int rank = r.x.rank();
  std::set<int> dims;
  for (int dim : attrs.dim) dims.insert(dim < 0 ? dim + rank : dim);
  for (int i = 0; i < rank; ++i) {
    r.gone.push_back(attrs.reduce_all || dims.contains(i));
    if (r.gone.back()) r.count *= r.x[i];
    if (!r.gone.back() || attrs.keep_dim) r.out.push_back(r.gone.back() ? 1 : r.x[i]);
  }
  if (r.out.rank() == 0) r.out.push_back(1);
  return r;
}

// Position in the result of every element of x, row by row of the last dimension: f(first element,
// its position, step of the position).
template <class F>
void each_row(const Reduction& r, F f) {
  const int rank = r.x.rank();
  const int64_t length = r.x[rank - 1];
  std::array<int64_t, Shape::kMaxRank> stride{};
  int64_t next = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const auto at = static_cast<size_t>(i);
    stride[at] = r.gone[at] ? 0 : next;
    if (!r.gone[at]) next *= r.x[i];
  }
  const int64_t rows = r.x.numel(0, rank - 1);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t position = 0;
    int64_t rest = row;
    for (int i = rank - 2; i >= 0; --i) {
      position += rest % r.x[i] * stride[static_cast<size_t>(i)];
      rest /= r.x[i];
    }
    f(row * length, position, stride[static_cast<size_t>(rank - 1)], length);
  }
}

template <class T, bool Mean>
std::unique_ptr<Prepared> prepare_reduce(PrepareContext& context) {
  const Reduction r = reduction_of(context);
  const int x = context.input("X");
  const int out = context.set_output("Out", r.out, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    const int64_t n = r.out.numel();
    std::fill(outs, outs + n, T{});
    each_row(r, [&](int64_t at, int64_t position, int64_t step, int64_t length) {
      if (step == 0) {
        outs[position] += sum_of(xs + at, length);
      } else {
        for (int64_t i = 0; i < length; ++i) outs[position + i] += xs[at + i];
      }
    });
    if (Mean) {
      for (int64_t i = 0; i < n; ++i) outs[i] /= static_cast<T>(r.count);
    }
  });
}

template <class T, bool Mean>
std::unique_ptr<Prepared> prepare_reduce_grad(PrepareContext& context) {
  const Reduction r = reduction_of(context);
  context.require(context.in("Out@GRAD").shape.numel() == r.out.numel(), "Out@GRAD",
                  r.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", r.x, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    const T divisor = Mean ? static_cast<T>(r.count) : T{1};
    each_row(r, [&](int64_t at, int64_t position, int64_t step, int64_t length) {
      for (int64_t i = 0; i < length; ++i) outs[at + i] = grads[position + i * step] / divisor;
    });
  });
}

}  // namespace

void register_reduce(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add("mean", prepare_mean<T>);
    add("mean_grad", prepare_mean_grad<T>);
    add("reduce_sum", prepare_reduce<T, false>);
    add("reduce_sum_grad", prepare_reduce_grad<T, false>);
    add("reduce_mean", prepare_reduce<T, true>);
    add("reduce_mean_grad", prepare_reduce_grad<T, true>);
  });
  for_types<float, double, int64_t>([&table]<class T>(std::type_identity<T>) {
    table.add_last("sum", DeviceKind::kCpu, dtype_of<T>(), {"tree", prepare_sum<T>});
  });
}

}  // namespace fleet::fluid::cpu
