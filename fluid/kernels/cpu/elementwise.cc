// Binary elementwise ops with broadcasting, and their gradients.
#include "fluid/ops/elementwise.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/strings.h"
#include "fluid/kernels/cpu/broadcast.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

// Each op: its value, and what it passes back to X and Y for an incoming gradient g.
struct Add {
  template <class T>
  static T value(T x, T y) {
    return x + y;
  }
  template <class T>
  static T to_x(T, T, T g) {
    return g;
  }
  template <class T>
  static T to_y(T, T, T g) {
    return g;
  }
};

struct Sub {
  template <class T>
  static T value(T x, T y) {
    return x - y;
  }
  template <class T>
  static T to_x(T, T, T g) {
    return g;
  }
  template <class T>
  static T to_y(T, T, T g) {
    return -g;
  }
};

struct Mul {
  template <class T>
  static T value(T x, T y) {
    return x * y;
  }
  template <class T>
  static T to_x(T, T y, T g) {
    return g * y;
  }
  template <class T>
  static T to_y(T x, T, T g) {
    return g * x;
  }
};

struct Div {
  template <class T>
  static T value(T x, T y) {
    return x / y;
  }
  template <class T>
  static T to_x(T, T y, T g) {
    return g / y;
  }
  template <class T>
  static T to_y(T x, T y, T g) {
    return -g * (x / y) / y;
  }
};

// Ties give the gradient to Y.
struct Max {
  template <class T>
  static T value(T x, T y) {
    return x > y ? x : y;
  }
  template <class T>
  static T to_x(T x, T y, T g) {
    return x > y ? g : T{};
  }
  template <class T>
  static T to_y(T x, T y, T g) {
    return x > y ? T{} : g;
  }
};

struct Min {
  template <class T>
  static T value(T x, T y) {
    return x < y ? x : y;
  }
  template <class T>
  static T to_x(T x, T y, T g) {
    return x < y ? g : T{};
  }
  template <class T>
  static T to_y(T x, T y, T g) {
    return x < y ? T{} : g;
  }
};

struct Pow {
  template <class T>
  static T value(T x, T y) {
    return static_cast<T>(std::pow(x, y));
  }
  template <class T>
  static T to_x(T x, T y, T g) {
    return g * y * static_cast<T>(std::pow(x, y - 1));
  }
  template <class T>
  static T to_y(T x, T y, T g) {
    return g * static_cast<T>(std::log(x) * std::pow(x, y));
  }
};

std::string where(const PrepareContext& context) {
  return str_cat("op '", context.op().type, "', X '", join(context.op().input("X"), ", "), "', Y '",
                 join(context.op().input("Y"), ", "), "'");
}

template <class T, class Op>
std::unique_ptr<Prepared> prepare_binary(PrepareContext& context) {
  const ValueSpec& x_spec = context.in("X");
  const ValueSpec& y_spec = context.in("Y");
  context.require(y_spec.dtype == x_spec.dtype, "Y", std::string(dtype_name(x_spec.dtype)),
                  std::string(dtype_name(y_spec.dtype)));
  const int axis = context.attrs<ElementwiseAttrs>().axis;
  const Shape shape = broadcast_shape(x_spec.shape, y_spec.shape, axis, where(context));
  const Broadcast walk(shape, x_spec.shape, y_spec.shape, axis);
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* ys = c.in<T>(y);
    T* outs = c.out<T>(out);
    walk.each_row([&](int64_t at, int64_t xi, int64_t yi, int64_t n, auto xstep, auto ystep) {
      for (int64_t i = 0; i < n; ++i) {
        outs[at + i] = Op::value(xs[xi + i * xstep], ys[yi + i * ystep]);
      }
    });
  });
}

// Adds what every element passes back, in row-major order, to where it came from.
template <class T, class F>
void reduce_back(const Broadcast& walk, T* sums, bool to_x, F value) {
  walk.each_row([&](int64_t at, int64_t xi, int64_t yi, int64_t n, auto xstep, auto ystep) {
    T* row = sums + (to_x ? xi : yi);
    const bool moves = to_x ? xstep != 0 : ystep != 0;
    if (moves) {
      for (int64_t i = 0; i < n; ++i) row[i] += value(at + i, xi + i * xstep, yi + i * ystep);
      return;
    }
    T sum{};
    for (int64_t i = 0; i < n; ++i) sum += value(at + i, xi + i * xstep, yi + i * ystep);
    *row += sum;
  });
}

template <class T, class F>
void pass_back(const Broadcast& walk, T* grad, int64_t numel, bool to_x, F value) {
  if (walk.repeats(to_x)) {
    std::fill(grad, grad + numel, T{});
    reduce_back(walk, grad, to_x, value);
    return;
  }
  walk.each_row([&](int64_t at, int64_t xi, int64_t yi, int64_t n, auto xstep, auto ystep) {
    T* row = grad + (to_x ? xi : yi);
    for (int64_t i = 0; i < n; ++i) row[i] = value(at + i, xi + i * xstep, yi + i * ystep);
  });
}

template <class T, class Op>
std::unique_ptr<Prepared> prepare_binary_grad(PrepareContext& context) {
  const Shape x_shape = context.in("X").shape;
  const Shape y_shape = context.in("Y").shape;
  const int axis = context.attrs<ElementwiseAttrs>().axis;
  const Shape shape = broadcast_shape(x_shape, y_shape, axis, where(context));
  context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const Broadcast walk(shape, x_shape, y_shape, axis);
  const int x = context.input("X");
  const int y = context.input("Y");
  const int g = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", x_shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", y_shape, dtype_of<T>());
  const int64_t x_numel = x_shape.numel();
  const int64_t y_numel = y_shape.numel();
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* ys = c.in<T>(y);
    const T* gs = c.in<T>(g);
    if (x_grad >= 0) {
      pass_back(walk, c.out<T>(x_grad), x_numel, true,
                [=](int64_t i, int64_t xi, int64_t yi) { return Op::to_x(xs[xi], ys[yi], gs[i]); });
    }
    if (y_grad >= 0) {
      pass_back(walk, c.out<T>(y_grad), y_numel, false,
                [=](int64_t i, int64_t xi, int64_t yi) { return Op::to_y(xs[xi], ys[yi], gs[i]); });
    }
  });
}

template <class Op>
void add(KernelTable& table, const std::string& type) {
  for_types<float, double, int32_t, int64_t>([&]<class T>(std::type_identity<T>) {
    table.add_last(type, DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_binary<T, Op>});
  });
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    table.add_last(type + "_grad", DeviceKind::kCpu, dtype_of<T>(),
                   {"loop", prepare_binary_grad<T, Op>});
  });
}

}  // namespace

void register_elementwise(KernelTable& table) {
  add<Add>(table, "elementwise_add");
  add<Sub>(table, "elementwise_sub");
  add<Mul>(table, "elementwise_mul");
  add<Div>(table, "elementwise_div");
  add<Max>(table, "elementwise_max");
  add<Min>(table, "elementwise_min");
  add<Pow>(table, "elementwise_pow");
}

}  // namespace fleet::fluid::cpu
