// Activations that need no function above arithmetic, square roots and the library's scalar
// functions; smooth_activation.cc has those made of exponentials.
#include "fluid/ops/math/activation.h"

#include <numbers>

#include "fluid/kernels/cpu/math/unary.h"

namespace fleet::fluid::cpu {
namespace {

// Each: its value, and its derivative times the incoming gradient g, in terms of X or of Out,
// whichever the gradient op has.
struct Relu {
  template <class T>
  static T one(UnaryParams, T x) {
    return x > T{0} ? x : x == x ? T{0} : x;
  }
  template <class T>
  static T back(UnaryParams, T out, T g) {
    return out > T{0} ? g : T{0};
  }
};
struct Relu6 {
  template <class T>
  static T one(UnaryParams p, T x) {
    const T cap = static_cast<T>(p.a);
    return x > T{0} ? (x < cap ? x : cap) : x == x ? T{0} : x;
  }
  template <class T>
  static T back(UnaryParams p, T out, T g) {
    return out > T{0} && out < static_cast<T>(p.a) ? g : T{0};
  }
};
struct Brelu {
  template <class T>
  static T one(UnaryParams p, T x) {
    const T low = static_cast<T>(p.a);
    const T high = static_cast<T>(p.b);
    return x < low ? low : x > high ? high : x;
  }
  template <class T>
  static T back(UnaryParams p, T x, T g) {
    return x > static_cast<T>(p.a) && x < static_cast<T>(p.b) ? g : T{0};
  }
};
struct LeakyRelu {
  template <class T>
  static T one(UnaryParams p, T x) {
    return x > T{0} ? x : static_cast<T>(p.a) * x;
  }
  template <class T>
  static T back(UnaryParams p, T x, T g) {
    return x > T{0} ? g : static_cast<T>(p.a) * g;
  }
};
struct HardSigmoid {
  template <class T>
  static T one(UnaryParams p, T x) {
    const T y = static_cast<T>(p.a) * x + static_cast<T>(p.b);
    return y < T{0} ? T{0} : y > T{1} ? T{1} : y;
  }
  template <class T>
  static T back(UnaryParams p, T out, T g) {
    return out > T{0} && out < T{1} ? static_cast<T>(p.a) * g : T{0};
  }
};
// Parameters: threshold, scale, offset, paddle_form.
struct HardSwish {
  template <class T>
  static T one(UnaryParams p, T x) {
    const T cap = static_cast<T>(p.a);
    const T y = x + static_cast<T>(p.c);
    return x * (y < T{0} ? T{0} : y > cap ? cap : y) / static_cast<T>(p.b);
  }
  template <class T>
  static T back(UnaryParams p, T x, T g) {
    const T cap = static_cast<T>(p.a);
    const T y = x + static_cast<T>(p.c);
    const T inside = y > T{0} ? x + y : T{0};
    if (p.d != 0 && !(y < cap)) return g;
    return g * (y < cap ? inside : cap) / static_cast<T>(p.b);
  }
};
struct SoftShrink {
  template <class T>
  static T one(UnaryParams p, T x) {
    const T lambda = static_cast<T>(p.a);
    return x > lambda ? x - lambda : x < -lambda ? x + lambda : x == x ? T{0} : x;
  }
  template <class T>
  static T back(UnaryParams p, T x, T g) {
    const T lambda = static_cast<T>(p.a);
    return x > lambda || x < -lambda ? g : T{0};
  }
};
struct HardShrink {
  template <class T>
  static T one(UnaryParams p, T x) {
    return std::abs(x) <= static_cast<T>(p.a) ? T{0} : x;
  }
  template <class T>
  static T back(UnaryParams p, T x, T g) {
    return std::abs(x) <= static_cast<T>(p.a) ? T{0} : g;
  }
};
struct ThresholdedRelu {
  template <class T>
  static T one(UnaryParams p, T x) {
    return x <= static_cast<T>(p.a) ? T{0} : x;
  }
  template <class T>
  static T back(UnaryParams p, T x, T g) {
    return x > static_cast<T>(p.a) ? g : T{0};
  }
};
struct Square {
  template <class T>
  static T one(UnaryParams, T x) {
    return x * x;
  }
  template <class T>
  static T back(UnaryParams, T x, T g) {
    return T{2} * g * x;
  }
};
struct Abs {
  template <class T>
  static T one(UnaryParams, T x) {
    return static_cast<T>(std::abs(x));
  }
  template <class T>
  static T back(UnaryParams, T x, T g) {
    return x > T{0} ? g : x < T{0} ? -g : T{0};
  }
};
struct Floor {
  template <class T>
  static T one(UnaryParams, T x) {
    return std::floor(x);
  }
};
struct Ceil {
  template <class T>
  static T one(UnaryParams, T x) {
    return std::ceil(x);
  }
};
struct Round {
  template <class T>
  static T one(UnaryParams, T x) {
    return std::round(x);
  }
};
struct Sign {
  template <class T>
  static T one(UnaryParams, T x) {
    return x > T{0} ? T{1} : x < T{0} ? T{-1} : x;
  }
};

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
void add_flat(KernelTable& table, const char* type) {
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    add_each_value<F, T>(table, type);
    add_kernel<T>(table, std::string(type) + "_grad", "loop", prepare_zero<T>);
  });
}

void add_pieces(KernelTable& table) {
  add_each<Relu>(table, "relu");
  add_each<Relu6>(table, "relu6", params_of<ThresholdAttrs, &ThresholdAttrs::threshold>);
  add_each<Brelu>(table, "brelu", params_of<BreluAttrs, &BreluAttrs::t_min, &BreluAttrs::t_max>);
  add_each<LeakyRelu>(table, "leaky_relu", params_of<LeakyReluAttrs, &LeakyReluAttrs::alpha>);
  add_each<HardSigmoid>(
      table, "hard_sigmoid",
      params_of<HardSigmoidAttrs, &HardSigmoidAttrs::slope, &HardSigmoidAttrs::offset>);
  add_each<HardSwish>(table, "hard_swish",
                      params_of<HardSwishAttrs, &HardSwishAttrs::threshold, &HardSwishAttrs::scale,
                                &HardSwishAttrs::offset, &HardSwishAttrs::paddle_form>);
  add_each<SoftShrink>(table, "softshrink", params_of<SoftShrinkAttrs, &SoftShrinkAttrs::lambda>);
  add_each<HardShrink>(table, "hard_shrink",
                       params_of<HardShrinkAttrs, &HardShrinkAttrs::threshold>);
  add_each<ThresholdedRelu>(table, "thresholded_relu",
                            params_of<ThresholdedReluAttrs, &ThresholdedReluAttrs::threshold>);
  add_each<Abs>(table, "abs");
  add_flat<Floor>(table, "floor");
  add_flat<Ceil>(table, "ceil");
  add_flat<Round>(table, "round");
  for_types<float, double>(
      [&]<class T>(std::type_identity<T>) { add_each_value<Sign, T>(table, "sign"); });
}

// A function without parameters: its value of x, and its derivative times g.
template <class Value, class Back>
struct Function {
  template <class T>
  static T one(UnaryParams, T x) {
    return Value{}(x);
  }
  template <class T>
  static T back(UnaryParams, T in, T g) {
    return Back{}(in, g);
  }
};

template <class Value, class Back>
void add_function(KernelTable& table, const char* type, Value, Back) {
  add_each<Function<Value, Back>>(table, type);
}

void add_powers(KernelTable& table) {
  add_each<Square>(table, "square");
  add_function(
      table, "softsign", []<class T>(T x) { return x / (T{1} + std::abs(x)); },
      []<class T>(T x, T g) {
        const T y = T{1} + std::abs(x);
        return g / (y * y);
      });
  add_function(
      table, "sqrt", [](auto x) { return std::sqrt(x); },
      []<class T>(T out, T g) { return T(0.5) * g / out; });
  add_function(
      table, "rsqrt", []<class T>(T x) { return T{1} / std::sqrt(x); },
      []<class T>(T out, T g) { return T(-0.5) * g * out * out * out; });
  add_function(
      table, "reciprocal", []<class T>(T x) { return T{1} / x; },
      [](auto out, auto g) { return -g * out * out; });
}

void add_angles(KernelTable& table) {
  add_function(
      table, "sin", [](auto x) { return std::sin(x); },
      [](auto x, auto g) { return g * std::cos(x); });
  add_function(
      table, "cos", [](auto x) { return std::cos(x); },
      [](auto x, auto g) { return -g * std::sin(x); });
  add_function(
      table, "asin", [](auto x) { return std::asin(x); },
      []<class T>(T x, T g) { return g / std::sqrt(T{1} - x * x); });
  add_function(
      table, "acos", [](auto x) { return std::acos(x); },
      []<class T>(T x, T g) { return -g / std::sqrt(T{1} - x * x); });
  add_function(
      table, "atan", [](auto x) { return std::atan(x); },
      []<class T>(T x, T g) { return g / (T{1} + x * x); });
  add_function(
      table, "sinh", [](auto x) { return std::sinh(x); },
      [](auto x, auto g) { return g * std::cosh(x); });
  add_function(
      table, "cosh", [](auto x) { return std::cosh(x); },
      [](auto x, auto g) { return g * std::sinh(x); });
}

}  // namespace

void register_activation(KernelTable& table) {
  add_pieces(table);
  add_powers(table);
  add_angles(table);
  for_types<int32_t, int64_t>([&]<class T>(std::type_identity<T>) {
    add_each_value<Abs, T>(table, "abs");
    add_each_value<Square, T>(table, "square");
  });
  register_smooth_activation(table);
}

}  // namespace fleet::fluid::cpu
