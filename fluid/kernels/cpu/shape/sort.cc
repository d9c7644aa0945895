// Ops along one axis that look for positions or go from element to element.
#include <algorithm>
#include <numeric>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/loss/softmax.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/ops/shape/index_ops.h"

namespace fleet::fluid::cpu {
namespace {

// The element at which number i of the lines along the axis begins.
int64_t line_start(const AxisView& view, int64_t i) {
  return i / view.inner * view.n * view.inner + i % view.inner;
}

template <class T>
std::unique_ptr<Prepared> prepare_cumsum(PrepareContext& context) {
  const auto attrs = context.attrs<CumsumAttrs>();
  const Shape& x_shape = context.in("X").shape;
  const Shape shape = attrs.flatten ? Shape{x_shape.numel()} : x_shape;
  const AxisView view(shape, attrs.flatten ? 0 : attrs.axis);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const bool exclusive = attrs.exclusive;
  const bool reverse = attrs.reverse;
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    for (int64_t line = 0; line < view.outer * view.inner; ++line) {
      const int64_t start = line_start(view, line);
      T sum{};
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t at = start + (reverse ? view.n - 1 - j : j) * view.inner;
        const T value = xs[at];
        outs[at] = exclusive ? sum : sum + value;
        sum += value;
      }
    }
  });
}

template <class X, class Out>
void write_one_hot(const X* xs, int64_t count, int64_t depth, bool allow_outside, Out* outs) {
  std::fill(outs, outs + count * depth, Out{});
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<int64_t>(xs[i]);
    if (at >= 0 && at < depth) {
      outs[i * depth + at] = Out{1};
    } else if (!allow_outside) {
      throw_error(ErrorCode::kFeed, {.what = "a value is not the index of a class",
                                     .where = "op one_hot, slot 'X'",
                                     .expected = str_cat("0 to ", depth - 1),
                                     .got = str_cat(at),
                                     .fix = "correct it, give more depth, or allow_out_of_range"});
    }
  }
}

template <class X>
std::unique_ptr<Prepared> prepare_one_hot(PrepareContext& context) {
  const auto attrs = context.attrs<OneHotAttrs>();
  Shape shape = context.in("X").shape;
  context.require(attrs.depth >= 1, "X", "depth >= 1", str_cat(attrs.depth));
  const int64_t count = shape.numel();
  if (context.op().type == "one_hot_v2") {
    shape.push_back(attrs.depth);
  } else {
    context.require(shape.rank() >= 1 && shape[-1] == 1, "X", "[..., 1]", shape.to_string());
    shape.set(-1, attrs.depth);
  }
  const int x = context.input("X");
  std::unique_ptr<Prepared> prepared;
  for_types<float, double, int32_t, int64_t>([&]<class Out>(std::type_identity<Out>) {
    if (attrs.dtype != dtype_of<Out>()) return;
    const int out = context.set_output("Out", shape, dtype_of<Out>());
    prepared = make_prepared([=](const KernelContext& c) {
      write_one_hot(c.in<X>(x), count, attrs.depth, attrs.allow_out_of_range, c.out<Out>(out));
    });
  });
  return prepared;
}

template <class T, bool Largest>
std::unique_ptr<Prepared> prepare_arg(PrepareContext& context) {
  const auto attrs = context.attrs<ArgMaxAttrs>();
  const Shape& x_shape = context.in("X").shape;
  const AxisView view(x_shape, static_cast<int>(attrs.axis));
  context.require(view.n > 0, "X", "elements along the axis", x_shape.to_string());
  const int rank = x_shape.rank();
  const int axis = static_cast<int>(attrs.axis < 0 ? attrs.axis + rank : attrs.axis);
  Shape shape;
  for (int i = 0; i < rank; ++i) {
    if (i != axis || attrs.keepdims) shape.push_back(i == axis ? 1 : x_shape[i]);
  }
  if (shape.rank() == 0) shape.push_back(1);
  const DType dtype = attrs.dtype.empty() ? DType::kInt64 : parse_dtype(attrs.dtype);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype);
  return make_prepared([=, wide = dtype == DType::kInt64](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    for (int64_t line = 0; line < view.outer * view.inner; ++line) {
      const T* values = xs + line_start(view, line);
      int64_t best = 0;
      for (int64_t j = 1; j < view.n; ++j) {
        const T a = values[j * view.inner];
        const T b = values[best * view.inner];
        if (Largest ? a > b : a < b) best = j;
      }
      if (wide) {
        c.out<int64_t>(out)[line] = best;
      } else {
        c.out<int32_t>(out)[line] = static_cast<int32_t>(best);
      }
    }
  });
}

// Equal elements keep their order; not-a-number last.
template <class T>
std::unique_ptr<Prepared> prepare_argsort(PrepareContext& context) {
  const auto attrs = context.attrs<ArgsortAttrs>();
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, attrs.axis);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const int indices = context.set_output("Indices", shape, DType::kInt64);
  std::vector<int64_t> order(static_cast<size_t>(view.n));
  return make_prepared([=, descending = attrs.descending](const KernelContext& c) mutable {
    const T* xs = c.in<T>(x);
    for (int64_t line = 0; line < view.outer * view.inner; ++line) {
      const int64_t start = line_start(view, line);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
        const T a = xs[start + i * view.inner];
        const T b = xs[start + j * view.inner];
        if (a != a || b != b) return a == a;
        return descending ? a > b : a < b;
      });
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t from = order[static_cast<size_t>(j)];
        const int64_t at = start + j * view.inner;
        if (out >= 0) c.out<T>(out)[at] = xs[start + from * view.inner];
        if (indices >= 0) c.out<int64_t>(indices)[at] = from;
      }
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_argsort_grad(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, context.attrs<ArgsortAttrs>().axis);
  context.require(context.in("Indices").shape == shape && context.in("Out@GRAD").shape == shape,
                  "Indices", shape.to_string(), context.in("Indices").shape.to_string());
  const int indices = context.input("Indices");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const auto* from = c.in<int64_t>(indices);
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    for (int64_t line = 0; line < view.outer * view.inner; ++line) {
      const int64_t start = line_start(view, line);
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t at = start + j * view.inner;
        outs[start + from[at] * view.inner] = grads[at];
      }
    }
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
