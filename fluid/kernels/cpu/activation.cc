// Elementwise functions of one tensor, and their gradients.
#include <cmath>
#include <cstring>
#include <string>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

// Each function: its value, and its derivative times the incoming gradient g, in terms of x or of
// the output, whichever the gradient op has (`in` is that one).
struct Relu {
  template <class T>
  static T value(T x) {
    return x > T{0} ? x : x == x ? T{0} : x;
  }
  template <class T>
  static T back(T out, T g) {
    return out > T{0} ? g : T{0};
  }
};
struct Sigmoid {
  template <class T>
  static T value(T x) {
    return T{1} / (T{1} + std::exp(-x));
  }
  template <class T>
  static T back(T out, T g) {
    return g * out * (T{1} - out);
  }
};
struct Tanh {
  template <class T>
  static T value(T x) {
    return std::tanh(x);
  }
  template <class T>
  static T back(T out, T g) {
    return g * (T{1} - out * out);
  }
};
struct Sqrt {
  template <class T>
  static T value(T x) {
    return std::sqrt(x);
  }
  template <class T>
  static T back(T out, T g) {
    return T(0.5) * g / out;
  }
};
struct Exp {
  template <class T>
  static T value(T x) {
    return std::exp(x);
  }
  template <class T>
  static T back(T out, T g) {
    return g * out;
  }
};
struct Reciprocal {
  template <class T>
  static T value(T x) {
    return T{1} / x;
  }
  template <class T>
  static T back(T out, T g) {
    return -g * out * out;
  }
};
struct Square {
  template <class T>
  static T value(T x) {
    return x * x;
  }
  template <class T>
  static T back(T x, T g) {
    return T{2} * g * x;
  }
};
struct Abs {
  template <class T>
  static T value(T x) {
    return std::abs(x);
  }
  template <class T>
  static T back(T x, T g) {
    return x > T{0} ? g : x < T{0} ? -g : T{0};
  }
};
struct Log {
  template <class T>
  static T value(T x) {
    return std::log(x);
  }
  template <class T>
  static T back(T x, T g) {
    return g / x;
  }
};
struct Sin {
  template <class T>
  static T value(T x) {
    return std::sin(x);
  }
  template <class T>
  static T back(T x, T g) {
    return g * std::cos(x);
  }
};
struct Cos {
  template <class T>
  static T value(T x) {
    return std::cos(x);
  }
  template <class T>
  static T back(T x, T g) {
    return -g * std::sin(x);
  }
};
struct Floor {
  template <class T>
  static T value(T x) {
    return std::floor(x);
  }
};
struct Ceil {
  template <class T>
  static T value(T x) {
    return std::ceil(x);
  }
};
struct Round {
  template <class T>
  static T value(T x) {
    return std::round(x);
  }
};
struct Sign {
  template <class T>
  static T value(T x) {
    return x > T{0} ? T{1} : x < T{0} ? T{-1} : x;
  }
};

template <class T, class F>
std::unique_ptr<Prepared> prepare_value(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    for (size_t i = 0; i < n; ++i) outs[i] = F::value(xs[i]);
  });
}

using Loop = void (*IsaLoops::*)(const float*, float*, size_t);

// The vectorised loop of float.
template <Loop loop>
std::unique_ptr<Prepared> prepare_loop(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, DType::kFloat32);
  return make_prepared(
      [=](const KernelContext& c) { (isa_loops().*loop)(c.in<float>(x), c.out<float>(out), n); });
}

template <class T, class F>
std::unique_ptr<Prepared> prepare_back(PrepareContext& context) {
  const char* slot = context.has_input("Out") ? "Out" : "X";
  const Shape shape = context.in("Out@GRAD").shape;
  context.require(context.in(slot).shape == shape, slot, shape.to_string(),
                  context.in(slot).shape.to_string());
  const auto n = static_cast<size_t>(shape.numel());
  const int in = context.input(slot);
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* ins = c.in<T>(in);
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    for (size_t i = 0; i < n; ++i) outs[i] = F::back(ins[i], grads[i]);
  });
}

// For functions that are flat almost everywhere.
template <class T>
std::unique_ptr<Prepared> prepare_zero(PrepareContext& context) {
  const Shape shape = context.in("Out@GRAD").shape;
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    Tensor& tensor = c.output(out);
    if (tensor.bytes() != 0) std::memset(tensor.raw(), 0, tensor.bytes());
  });
}

template <class F>
void add_value(KernelTable& table, const std::string& type) {
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    table.add_last(type, DeviceKind::kCpu, dtype_of<T>(), {"reference", prepare_value<T, F>});
  });
}

template <class F>
void add(KernelTable& table, const std::string& type) {
  add_value<F>(table, type);
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    table.add_last(type + "_grad", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_back<T, F>});
  });
}

template <class F>
void add_flat(KernelTable& table, const std::string& type) {
  add_value<F>(table, type);
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    table.add_last(type + "_grad", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_zero<T>});
  });
}

template <Loop loop>
void add_loop(KernelTable& table, const char* type) {
  table.add_first(type, DeviceKind::kCpu, DType::kFloat32, {"simd", prepare_loop<loop>});
}

}  // namespace

void register_activation(KernelTable& table) {
  add<Relu>(table, "relu");
  add<Sigmoid>(table, "sigmoid");
  add<Tanh>(table, "tanh");
  add<Sqrt>(table, "sqrt");
  add<Exp>(table, "exp");
  add<Reciprocal>(table, "reciprocal");
  add<Square>(table, "square");
  add<Abs>(table, "abs");
  add<Log>(table, "log");
  add<Sin>(table, "sin");
  add<Cos>(table, "cos");
  add_flat<Floor>(table, "floor");
  add_flat<Ceil>(table, "ceil");
  add_flat<Round>(table, "round");
  add_value<Sign>(table, "sign");
  add_loop<&IsaLoops::exp>(table, "exp");
  add_loop<&IsaLoops::tanh>(table, "tanh");
  add_loop<&IsaLoops::sigmoid>(table, "sigmoid");
}

}  // namespace fleet::fluid::cpu
