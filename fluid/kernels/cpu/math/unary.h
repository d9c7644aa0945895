// Elementwise functions of one tensor: a function is written once, for blocks of elements, and
// compiled for each element type and each source of mathematical functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/functions/activations.h"

namespace fleet::fluid::cpu {

// Functions see at most so many elements at once.
inline constexpr int64_t kUnaryBlock = 256;

// Mathematical functions of whole blocks; in and out may be the same array.
struct PlainMath {
  template <class T>
  static void exp(const T* x, T* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = std::exp(x[i]);
  }
  template <class T>
  static void tanh(const T* x, T* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(x[i]);
  }
  template <class T>
  static void sigmoid(const T* x, T* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = T{1} / (T{1} + std::exp(-x[i]));
  }
  template <class T>
  static void log(const T* x, T* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = std::log(x[i]);
  }
  template <class T>
  static void log1p(const T* x, T* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = std::log1p(x[i]);
  }
  template <class T>
  static void erf(const T* x, T* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = std::erf(x[i]);
  }
};

// The vectorised loops of float.
struct FastMath {
  static void exp(const float* x, float* out, int64_t n) { run(isa_loops().exp, x, out, n); }
  static void tanh(const float* x, float* out, int64_t n) { run(isa_loops().tanh, x, out, n); }
  static void sigmoid(const float* x, float* out, int64_t n) {
    run(isa_loops().sigmoid, x, out, n);
  }
  static void log(const float* x, float* out, int64_t n) { run(isa_loops().log, x, out, n); }
  static void log1p(const float* x, float* out, int64_t n) { run(isa_loops().log1p, x, out, n); }
  static void erf(const float* x, float* out, int64_t n) { run(isa_loops().erf, x, out, n); }

 private:
  static void run(void (*loop)(const float*, float*, size_t), const float* x, float* out,
                  int64_t n) {
    loop(x, out, static_cast<size_t>(n));
  }
};

template <class T>
using UnaryFunction = void (*)(UnaryParams params, const T* x, T* out, int64_t n);
// `in` is X or Out, whichever the gradient op has; out = derivative * g.
template <class T>
using UnaryGradient = void (*)(UnaryParams params, const T* in, const T* g, T* out, int64_t n);
using ParamsOf = UnaryParams (*)(const PrepareContext& context);

inline UnaryParams no_params(const PrepareContext&) {
  return {};
}

// The given members of the op's attributes.
template <class Attrs, auto... members>
UnaryParams params_of(const PrepareContext& context) {
  const auto attrs = context.attrs<Attrs>();
  return UnaryParams{static_cast<double>(attrs.*members)...};
}

template <class T>
std::unique_ptr<Prepared> prepare_unary(PrepareContext& context, UnaryFunction<T> function,
                                        ParamsOf params_of_op) {
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const UnaryParams params = params_of_op(context);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    c.tiles().split(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += kUnaryBlock) {
        function(params, xs + i, outs + i, std::min(kUnaryBlock, end - i));
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_unary_grad(PrepareContext& context, UnaryGradient<T> function,
                                             ParamsOf params_of_op) {
  const char* slot = context.has_input("Out") ? "Out" : "X";
  const Shape shape = context.in("Out@GRAD").shape;
  context.require(context.in(slot).shape == shape, slot, shape.to_string(),
                  context.in(slot).shape.to_string());
  const int64_t n = shape.numel();
  const UnaryParams params = params_of_op(context);
  const int in = context.input(slot);
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* ins = c.in<T>(in);
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    c.tiles().split(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i += kUnaryBlock) {
        function(params, ins + i, grads + i, outs + i, std::min(kUnaryBlock, end - i));
      }
    });
  });
}

// F has one(params, x), and back(params, in, g) when it has a gradient.
template <class F, class T>
void each_value(UnaryParams params, const T* x, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = F::one(params, x[i]);
}
template <class F, class T>
void each_back(UnaryParams params, const T* in, const T* g, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = F::back(params, in[i], g[i]);
}

template <class T, class Prepare>
void add_kernel(KernelTable& table, const std::string& type, const char* name, Prepare prepare,
                bool in_place = false) {
  table.add_last(
      type, DeviceKind::kCpu, dtype_of<T>(),
      {.name = name, .prepare = prepare, .images = ImageOrder::kElements, .in_place = in_place});
}

template <class F, class T>
void add_each_value(KernelTable& table, const char* type, ParamsOf params = no_params) {
  const auto prepare = [params](PrepareContext& context) {
    return prepare_unary<T>(context, each_value<F, T>, params);
  };
  add_kernel<T>(table, type, "loop", prepare, true);
}

// An op whose value and gradient are written element by element.
template <class F>
void add_each(KernelTable& table, const char* type, ParamsOf params = no_params) {
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    add_each_value<F, T>(table, type, params);
    const auto prepare = [params](PrepareContext& context) {
      return prepare_unary_grad<T>(context, each_back<F, T>, params);
    };
    add_kernel<T>(table, std::string(type) + "_grad", "loop", prepare, true);
  });
}

template <class F, class Math, class T>
void add_block_kernels(KernelTable& table, const char* type, const char* name, ParamsOf params) {
  add_kernel<T>(table, type, name, [params](PrepareContext& context) {
    return prepare_unary<T>(context, F::template value<Math, T>, params);
  });
  add_kernel<T>(table, std::string(type) + "_grad", name, [params](PrepareContext& context) {
    return prepare_unary_grad<T>(context, F::template back<Math, T>, params);
  });
}

// An op whose value and gradient are written for blocks, with functions of Math.
template <class F>
void add_blocks(KernelTable& table, const char* type, ParamsOf params = no_params) {
  add_block_kernels<F, FastMath, float>(table, type, "simd", params);
  add_block_kernels<F, PlainMath, float>(table, type, "reference", params);
  add_block_kernels<F, PlainMath, double>(table, type, "reference", params);
}

}  // namespace fleet::fluid::cpu
