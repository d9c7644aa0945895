// Activations made of exponentials and their kin, pow, and prelu.
#include <numbers>

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/math/binary.h"
#include "fluid/kernels/cpu/math/unary.h"
#include "fluid/ops/math/activation.h"

namespace fleet::fluid::cpu {
namespace {

// Each: its values, and its derivative times the incoming gradient g, in terms of X or of Out,
// whichever the gradient op has, for at most kUnaryBlock elements.
struct Exp {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    Math::exp(x, out, n);
  }
  template <class, class T>
  static void back(UnaryParams, const T* out, const T* g, T* grad, int64_t n) {
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] * out[i];
  }
};
struct Sigmoid {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    Math::sigmoid(x, out, n);
  }
  template <class, class T>
  static void back(UnaryParams, const T* out, const T* g, T* grad, int64_t n) {
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] * out[i] * (T{1} - out[i]);
  }
};
struct Tanh {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    Math::tanh(x, out, n);
  }
  template <class, class T>
  static void back(UnaryParams, const T* out, const T* g, T* grad, int64_t n) {
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] * (T{1} - out[i] * out[i]);
  }
};
struct Log {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    Math::log(x, out, n);
  }
  template <class, class T>
  static void back(UnaryParams, const T* x, const T* g, T* grad, int64_t n) {
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] / x[i];
  }
};
struct Log1p {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    Math::log1p(x, out, n);
  }
  template <class, class T>
  static void back(UnaryParams, const T* x, const T* g, T* grad, int64_t n) {
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] / (T{1} + x[i]);
  }
};
struct Erf {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    Math::erf(x, out, n);
  }
  template <class Math, class T>
  static void back(UnaryParams, const T* x, const T* g, T* grad, int64_t n) {
    T e[kUnaryBlock];
    for (int64_t i = 0; i < n; ++i) e[i] = -x[i] * x[i];
    Math::exp(e, e, n);
    const T factor = T{2} * std::numbers::inv_sqrtpi_v<T>;
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] * factor * e[i];
  }
};
// Parameters: alpha, paddle_form.
struct Elu {
  template <class Math, class T>
  static void exponentials(const T* x, T* e, int64_t n) {
    for (int64_t i = 0; i < n; ++i) e[i] = x[i] > T{0} ? T{0} : x[i];
    Math::exp(e, e, n);
  }
  template <class Math, class T>
  static void value(UnaryParams p, const T* x, T* out, int64_t n) {
    T e[kUnaryBlock];
    exponentials<Math>(x, e, n);
    const T alpha = static_cast<T>(p.a);
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] > T{0} ? x[i] : alpha * (e[i] - T{1});
  }
  template <class Math, class T>
  static void back(UnaryParams p, const T* x, const T* g, T* grad, int64_t n) {
    T e[kUnaryBlock];
    const T alpha = static_cast<T>(p.a);
    if (p.b != 0) {
      Math::exp(x, e, n);
      for (int64_t i = 0; i < n; ++i) {
        const T positive = x[i] > T{0} ? T{1} : T{0};
        grad[i] = g[i] * positive + g[i] * alpha * e[i] * (T{1} - positive);
      }
      return;
    }
    exponentials<Math>(x, e, n);
    for (int64_t i = 0; i < n; ++i) grad[i] = x[i] > T{0} ? g[i] : g[i] * alpha * e[i];
  }
};
// Parameter: beta.
struct Swish {
  template <class Math, class T>
  static void sigmoids(UnaryParams p, const T* x, T* s, int64_t n) {
    const T beta = static_cast<T>(p.a);
    for (int64_t i = 0; i < n; ++i) s[i] = beta * x[i];
    Math::sigmoid(s, s, n);
  }
  template <class Math, class T>
  static void value(UnaryParams p, const T* x, T* out, int64_t n) {
    T s[kUnaryBlock];
    sigmoids<Math>(p, x, s, n);
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * s[i];
  }
  template <class Math, class T>
  static void back(UnaryParams p, const T* x, const T* g, T* grad, int64_t n) {
    T s[kUnaryBlock];
    sigmoids<Math>(p, x, s, n);
    const T beta = static_cast<T>(p.a);
    for (int64_t i = 0; i < n; ++i) {
      grad[i] = g[i] * (s[i] + beta * x[i] * s[i] * (T{1} - s[i]));
    }
  }
};
// Parameter: approximate.
struct Gelu {
  // sqrt(2 / pi) (x + 0.044715 x^3)
  template <class T>
  static constexpr T kInner = T(0.79788456080286535588L);
  template <class T>
  static constexpr T kCube = T(0.044715);
  // Below, the value rounds to 0, also where 0 times infinity would not be a number.
  template <class T>
  static constexpr T kFloor = T(sizeof(T) == 4 ? -15 : -39);
  // Behind it tanh is 1, but for roundings that x^3 would enlarge.
  template <class T>
  static constexpr T kSteep = T(sizeof(T) == 4 ? 5.5 : 8);

  template <class Math, class T>
  static void value(UnaryParams p, const T* x, T* out, int64_t n) {
    T s[kUnaryBlock];
    if (p.a != 0) {
      for (int64_t i = 0; i < n; ++i) s[i] = kInner<T> * x[i] * (T{1} + kCube<T> * x[i] * x[i]);
      Math::tanh(s, s, n);
    } else {
      for (int64_t i = 0; i < n; ++i) s[i] = x[i] * T(1 / std::numbers::sqrt2);
      Math::erf(s, s, n);
    }
    for (int64_t i = 0; i < n; ++i) {
      const T value = T(0.5) * x[i] * (T{1} + s[i]);
      out[i] = x[i] < kFloor<T> ? T{} : value;
    }
  }
  template <class Math, class T>
  static void back(UnaryParams p, const T* x, const T* g, T* grad, int64_t n) {
    T s[kUnaryBlock];
    if (p.a != 0) {
      for (int64_t i = 0; i < n; ++i) s[i] = kInner<T> * x[i] * (T{1} + kCube<T> * x[i] * x[i]);
      Math::tanh(s, s, n);
      for (int64_t i = 0; i < n; ++i) {
        const T inner = kInner<T> * (T{1} + T{3} * kCube<T> * x[i] * x[i]);
        const T bend = x[i] * (T{1} - s[i] * s[i]) * inner;
        const T slope = T{1} + s[i] + (std::abs(x[i]) < kSteep<T> ? bend : T{});
        grad[i] = g[i] * T(0.5) * slope;
      }
      return;
    }
    T density[kUnaryBlock];
    for (int64_t i = 0; i < n; ++i) s[i] = x[i] * T(1 / std::numbers::sqrt2);
    for (int64_t i = 0; i < n; ++i) density[i] = T(-0.5) * x[i] * x[i];
    Math::erf(s, s, n);
    Math::exp(density, density, n);
    const T factor = T(0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
    for (int64_t i = 0; i < n; ++i) {
      grad[i] = g[i] * (T(0.5) * (T{1} + s[i]) + x[i] * factor * density[i]);
    }
  }
};

// log(1 + e^x), from the side that does not overflow.
template <class Math, class T>
void softplus(const T* x, T* out, int64_t n) {
  T e[kUnaryBlock];
  for (int64_t i = 0; i < n; ++i) e[i] = -std::abs(x[i]);
  Math::exp(e, e, n);
  Math::log1p(e, e, n);
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] < T{0} ? T{0} : x[i]) + e[i];
}

struct Softplus {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    softplus<Math>(x, out, n);
  }
  template <class Math, class T>
  static void back(UnaryParams, const T* x, const T* g, T* grad, int64_t n) {
    T s[kUnaryBlock];
    Math::sigmoid(x, s, n);
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] * s[i];
  }
};
struct LogSigmoid {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    T s[kUnaryBlock];
    for (int64_t i = 0; i < n; ++i) s[i] = -x[i];
    softplus<Math>(s, out, n);
    for (int64_t i = 0; i < n; ++i) out[i] = -out[i];
  }
  template <class Math, class T>
  static void back(UnaryParams, const T* x, const T* g, T* grad, int64_t n) {
    T s[kUnaryBlock];
    for (int64_t i = 0; i < n; ++i) s[i] = -x[i];
    Math::sigmoid(s, s, n);
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] * s[i];
  }
};
// Parameters: threshold, paddle_form.
struct SoftRelu {
  template <class Math, class T>
  static void value(UnaryParams p, const T* x, T* out, int64_t n) {
    const T cap = static_cast<T>(p.a);
    T s[kUnaryBlock];
    for (int64_t i = 0; i < n; ++i) s[i] = x[i] > cap ? cap : x[i] < -cap ? -cap : x[i];
    softplus<Math>(s, out, n);
  }
  template <class Math, class T>
  static void back(UnaryParams p, const T* out, const T* g, T* grad, int64_t n) {
    const T cap = static_cast<T>(p.a);
    const T end = std::log1p(std::exp(-cap));
    const T low = p.b != 0 ? T{0} : end;
    const T high = p.b != 0 ? cap : cap + end;
    T e[kUnaryBlock];
    for (int64_t i = 0; i < n; ++i) e[i] = -out[i];
    Math::exp(e, e, n);
    for (int64_t i = 0; i < n; ++i) {
      grad[i] = out[i] > low && out[i] < high ? g[i] * (T{1} - e[i]) : T{0};
    }
  }
};
// Parameters: scale_a, scale_b.
struct Stanh {
  template <class Math, class T>
  static void tangents(UnaryParams p, const T* x, T* t, int64_t n) {
    const T a = static_cast<T>(p.a);
    for (int64_t i = 0; i < n; ++i) t[i] = a * x[i];
    Math::tanh(t, t, n);
  }
  template <class Math, class T>
  static void value(UnaryParams p, const T* x, T* out, int64_t n) {
    T t[kUnaryBlock];
    tangents<Math>(p, x, t, n);
    const T b = static_cast<T>(p.b);
    for (int64_t i = 0; i < n; ++i) out[i] = b * t[i];
  }
  template <class Math, class T>
  static void back(UnaryParams p, const T* x, const T* g, T* grad, int64_t n) {
    T t[kUnaryBlock];
    tangents<Math>(p, x, t, n);
    const T both = static_cast<T>(p.a) * static_cast<T>(p.b);
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] * both * (T{1} - t[i] * t[i]);
  }
};
struct TanhShrink {
  template <class Math, class T>
  static void value(UnaryParams, const T* x, T* out, int64_t n) {
    T t[kUnaryBlock];
    Math::tanh(x, t, n);
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] - t[i];
  }
  template <class Math, class T>
  static void back(UnaryParams, const T* x, const T* g, T* grad, int64_t n) {
    T t[kUnaryBlock];
    Math::tanh(x, t, n);
    for (int64_t i = 0; i < n; ++i) grad[i] = g[i] * t[i] * t[i];
  }
};

// Of a power, in elements of a simple loop: most are squares, some are slow.
constexpr int64_t kPowerCost = 4;

// Powers that are products or roots are taken as such.
template <class T>
void power(const T* x, T factor, T* out, int64_t n) {
  if (factor == T{2}) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * x[i];
  } else if (factor == T{1}) {
    std::copy(x, x + n, out);
  } else if (factor == T{0}) {
    std::fill(out, out + n, T{1});
  } else if (factor == T{3}) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * x[i] * x[i];
  } else if (factor == T{-1}) {
    for (int64_t i = 0; i < n; ++i) out[i] = T{1} / x[i];
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = std::pow(x[i], factor);
  }
}

template <class T>
T factor_of(const KernelContext& c, int tensor, float attribute) {
  return tensor >= 0 ? *c.in<T>(tensor) : static_cast<T>(attribute);
}

template <class T>
int factor_tensor(const PrepareContext& context) {
  const int tensor = context.input("FactorTensor");
  if (tensor >= 0) {
    const ValueSpec& spec = context.in("FactorTensor");
    context.require(spec.dtype == dtype_of<T>() && spec.shape.numel() == 1, "FactorTensor",
                    "one element of X's type", str_cat(dtype_name(spec.dtype), spec.shape));
  }
  return tensor;
}

template <class T>
std::unique_ptr<Prepared> prepare_pow(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const float factor = context.attrs<PowAttrs>().factor;
  const int tensor = factor_tensor<T>(context);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T exponent = factor_of<T>(c, tensor, factor);
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    c.tiles().split(n, kPowerCost, [&](int64_t begin, int64_t end) {
      power(xs + begin, exponent, outs + begin, end - begin);
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_pow_grad(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const float factor = context.attrs<PowAttrs>().factor;
  const int tensor = factor_tensor<T>(context);
  const int x = context.input("X");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T exponent = factor_of<T>(c, tensor, factor);
    const T* xs = c.in<T>(x);
    const T* gs = c.in<T>(grad);
    T* outs = c.out<T>(out);
    c.tiles().split(n, kPowerCost, [&](int64_t begin, int64_t end) {
      T powers[kUnaryBlock];
      for (int64_t at = begin; at < end; at += kUnaryBlock) {
        const int64_t length = std::min(kUnaryBlock, end - at);
        power(xs + at, exponent - T{1}, powers, length);
        for (int64_t i = 0; i < length; ++i) outs[at + i] = gs[at + i] * exponent * powers[i];
      }
    });
  });
}

// Of x and its factor.
struct Prelu {
  template <class T>
  static T value(T x, T factor) {
    return x > T{0} ? x : factor * x;
  }
};
struct PreluToX {
  template <class T>
  static T back(T x, T factor, T g) {
    return x > T{0} ? g : factor * g;
  }
};
struct PreluToFactor {
  template <class T>
  static T back(T x, T, T g) {
    return x > T{0} ? T{0} : g * x;
  }
};

Broadcast prelu_walk(const PreluView& view) {
  const Shape x = {view.outer, view.factors, view.inner};
  return {x, x, Shape{1, view.factors, 1}, -1};
}

template <class T>
std::unique_ptr<Prepared> prepare_prelu(PrepareContext& context) {
  const Broadcast walk = prelu_walk(prelu_view(context));
  const int x = context.input("X");
  const int alpha = context.input("Alpha");
  const int out = context.set_output("Out", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    each_binary_row(walk, c.tiles(), c.in<T>(x), c.in<T>(alpha), c.out<T>(out),
                    binary_row<Prelu, T, T>);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_prelu_grad(PrepareContext& context) {
  const PreluView view = prelu_view(context);
  const Shape& shape = context.in("X").shape;
  context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const int x = context.input("X");
  const int alpha = context.input("Alpha");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int alpha_grad = context.set_output("Alpha@GRAD", context.in("Alpha").shape, dtype_of<T>());
  return make_prepared([=, walk = prelu_walk(view)](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* factors = c.in<T>(alpha);
    const T* gs = c.in<T>(grad);
    if (alpha_grad >= 0) {
      pass_back<T>(walk, c.tiles(), false, xs, factors, gs, c.out<T>(alpha_grad), view.factors,
                   row_gradient<PreluToFactor, T>);
    }
    if (x_grad >= 0) {
      pass_back<T>(walk, c.tiles(), true, xs, factors, gs, c.out<T>(x_grad), view.numel(),
                   row_gradient<PreluToX, T>);
    }
  });
}

}  // namespace

void register_smooth_activation(KernelTable& table) {
  add_blocks<Exp>(table, "exp");
  add_blocks<Sigmoid>(table, "sigmoid");
  add_blocks<Tanh>(table, "tanh");
  add_blocks<Log>(table, "log");
  add_blocks<Log1p>(table, "log1p");
  add_blocks<Erf>(table, "erf");
  add_blocks<Elu>(table, "elu", params_of<EluAttrs, &EluAttrs::alpha, &EluAttrs::paddle_form>);
  add_blocks<Swish>(table, "swish", params_of<SwishAttrs, &SwishAttrs::beta>);
  add_blocks<Gelu>(table, "gelu", params_of<GeluAttrs, &GeluAttrs::approximate>);
  add_blocks<Softplus>(table, "softplus");
  add_blocks<LogSigmoid>(table, "logsigmoid");
  add_blocks<SoftRelu>(
      table, "soft_relu",
      params_of<SoftReluAttrs, &SoftReluAttrs::threshold, &SoftReluAttrs::paddle_form>);
  add_blocks<Stanh>(table, "stanh",
                    params_of<StanhAttrs, &StanhAttrs::scale_a, &StanhAttrs::scale_b>);
  add_blocks<TanhShrink>(table, "tanh_shrink");
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    add_kernel<T>(table, "pow", "loop", prepare_pow<T>);
    add_kernel<T>(table, "pow_grad", "loop", prepare_pow_grad<T>);
    add_kernel<T>(table, "prelu", "loop", prepare_prelu<T>);
    add_kernel<T>(table, "prelu_grad", "loop", prepare_prelu_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
