#include "fluid/kernels/cuda/halves_impl.h"
#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/math/unary_loops.h"
#include "fluid/kernels/functions/nonfinite_word.h"

namespace fleet::fluid::cuda {
namespace {

using namespace functions;  // NOLINT(google-build-using-namespace)

// Flat almost everywhere.
template <class Function>
struct Flat : Function {
  template <class T>
  __device__ static T back(UnaryParams, T, T) {
    return T{0};
  }
};

template <class T>
__device__ T sigmoid_of(T x) {
  return T{1} / (T{1} + exp(-x));
}
// log(1 + e^x), from the side that does not overflow.
template <class T>
__device__ T softplus_of(T x) {
  return (x < T{0} ? T{0} : x) + log1p(exp(-fabs(x)));
}

// The functions made of exponentials: smooth_activation.cc of the CPU, element by element.
struct Exp {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return exp(x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T out, T g) {
    return g * out;
  }
};
struct Sigmoid {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return sigmoid_of(x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T out, T g) {
    return g * out * (T{1} - out);
  }
};
struct Tanh {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return tanh(x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T out, T g) {
    return g * (T{1} - out * out);
  }
};
struct Log {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return log(x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T x, T g) {
    return g / x;
  }
};
struct Log1p {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return log1p(x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T x, T g) {
    return g / (T{1} + x);
  }
};
struct Erf {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return erf(x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T x, T g) {
    return g * T(1.1283791670955126) * exp(-x * x);  // 2 / sqrt(pi)
  }
};
// Parameters: alpha, paddle_form.
struct Elu {
  template <class T>
  __device__ static T one(UnaryParams p, T x) {
    return x > T{0} ? x : static_cast<T>(p.a) * (exp(x) - T{1});
  }
  template <class T>
  __device__ static T back(UnaryParams p, T x, T g) {
    const T alpha = static_cast<T>(p.a);
    if (p.b != 0) {
      const T positive = x > T{0} ? T{1} : T{0};
      return g * positive + g * alpha * exp(x) * (T{1} - positive);
    }
    return x > T{0} ? g : g * alpha * exp(x);
  }
};
// Parameter: beta.
struct Swish {
  template <class T>
  __device__ static T one(UnaryParams p, T x) {
    return x * sigmoid_of(static_cast<T>(p.a) * x);
  }
  template <class T>
  __device__ static T back(UnaryParams p, T x, T g) {
    const T beta = static_cast<T>(p.a);
    const T s = sigmoid_of(beta * x);
    return g * (s + beta * x * s * (T{1} - s));
  }
};
// Parameter: approximate. The constants are those of the CPU's kernel, which says why.
struct Gelu {
  template <class T>
  __device__ static T tangent(T x) {
    return tanh(T(0.79788456080286535588) * x * (T{1} + T(0.044715) * x * x));
  }
  template <class T>
  __device__ static T error(T x) {
    return erf(x * T(0.70710678118654752440));
  }
  template <class T>
  __device__ static T one(UnaryParams p, T x) {
    const T floor = T(sizeof(T) == 4 ? -15 : -39);
    const T s = p.a != 0 ? tangent(x) : error(x);
    return x < floor ? T{0} : T(0.5) * x * (T{1} + s);
  }
  template <class T>
  __device__ static T back(UnaryParams p, T x, T g) {
    if (p.a != 0) {
      const T steep = T(sizeof(T) == 4 ? 5.5 : 8);
      const T s = tangent(x);
      const T inner = T(0.79788456080286535588) * (T{1} + T(3) * T(0.044715) * x * x);
      const T bend = x * (T{1} - s * s) * inner;
      return g * T(0.5) * (T{1} + s + (fabs(x) < steep ? bend : T{0}));
    }
    const T density = T(0.39894228040143267794) * exp(T(-0.5) * x * x);  // 1 / sqrt(2 pi)
    return g * (T(0.5) * (T{1} + error(x)) + x * density);
  }
};
struct Softplus {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return softplus_of(x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T x, T g) {
    return g * sigmoid_of(x);
  }
};
struct LogSigmoid {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return -softplus_of(-x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T x, T g) {
    return g * sigmoid_of(-x);
  }
};
// Parameters: threshold, paddle_form.
struct SoftRelu {
  template <class T>
  __device__ static T one(UnaryParams p, T x) {
    const T cap = static_cast<T>(p.a);
    return softplus_of(x > cap ? cap : x < -cap ? -cap : x);
  }
  template <class T>
  __device__ static T back(UnaryParams p, T out, T g) {
    const T cap = static_cast<T>(p.a);
    const T end = log1p(exp(-cap));
    const T low = p.b != 0 ? T{0} : end;
    const T high = p.b != 0 ? cap : cap + end;
    return out > low && out < high ? g * (T{1} - exp(-out)) : T{0};
  }
};
// Parameters: scale_a, scale_b.
struct Stanh {
  template <class T>
  __device__ static T one(UnaryParams p, T x) {
    return static_cast<T>(p.b) * tanh(static_cast<T>(p.a) * x);
  }
  template <class T>
  __device__ static T back(UnaryParams p, T x, T g) {
    const T t = tanh(static_cast<T>(p.a) * x);
    return g * (static_cast<T>(p.a) * static_cast<T>(p.b)) * (T{1} - t * t);
  }
};
struct TanhShrink {
  template <class T>
  __device__ static T one(UnaryParams, T x) {
    return x - tanh(x);
  }
  template <class T>
  __device__ static T back(UnaryParams, T x, T g) {
    const T t = tanh(x);
    return g * t * t;
  }
};

template <class F, class T>
struct ValueLoop {
  UnaryParams params;
  const T* x;
  T* out;
  __device__ T element(int64_t i) const {
    return T(F::one(params, static_cast<Computed<T>>(x[i])));
  }
};
template <class F, class T>
struct BackLoop {
  UnaryParams params;
  const T* in;
  const T* grad;
  T* out;
  __device__ T element(int64_t i) const {
    using C = Computed<T>;
    return T(F::back(params, static_cast<C>(in[i]), static_cast<C>(grad[i])));
  }
};

template <class F, class T>
void value(RawStream stream, UnaryParams params, const T* x, T* out, int64_t n) {
  launch_each(stream, "unary", n, ValueLoop<F, T>{params, x, out});
}
template <class F, class T>
void back(RawStream stream, UnaryParams params, const T* in, const T* grad, T* out, int64_t n) {
  launch_each(stream, "unary_back", n, BackLoop<F, T>{params, in, grad, out});
}

template <class F, class T>
constexpr UnaryFunction<T> function(const char* op) {
  return {op, value<F, T>, back<F, T>};
}

template <class T>
__device__ T of(const Scalar<T>& scalar) {
  return scalar.tensor != nullptr ? *scalar.tensor : scalar.value;
}

// Powers that are products or roots are taken as such.
template <class T>
__device__ T power(T x, T factor) {
  if (factor == T{2}) return x * x;
  if (factor == T{1}) return x;
  if (factor == T{0}) return T{1};
  if (factor == T{3}) return x * x * x;
  if (factor == T{-1}) return T{1} / x;
  return std::pow(x, factor);
}

template <class T>
struct PowLoop {
  Scalar<T> factor;
  const T* x;
  T* out;
  __device__ T element(int64_t i) const { return power(x[i], of(factor)); }
};
template <class T>
struct PowBackLoop {
  Scalar<T> factor;
  const T* x;
  const T* grad;
  T* out;
  __device__ T element(int64_t i) const {
    const T exponent = of(factor);
    return grad[i] * exponent * power(x[i], exponent - T{1});
  }
};

template <class T>
struct ClipLoop {
  Scalar<T> low;
  Scalar<T> high;
  const T* x;
  T* out;
  __device__ T element(int64_t i) const {
    const T given = x[i];
    return given < of(low) ? of(low) : given > of(high) ? of(high) : given;
  }
};
template <class T>
struct ClipBackLoop {
  Scalar<T> low;
  Scalar<T> high;
  const T* x;
  const T* grad;
  T* out;
  __device__ T element(int64_t i) const {
    return x[i] > of(low) && x[i] < of(high) ? grad[i] : T{};
  }
};

template <class T>
struct PreluLoop {
  PreluView dims;
  const T* x;
  const T* alpha;
  const T* passed;  // x, or the gradient
  T* out;
  __device__ void operator()(int64_t i) const {
    const T factor = alpha[i / dims.inner % dims.factors];
    out[i] = x[i] > T{0} ? passed[i] : factor * passed[i];
  }
};
template <class T>
struct PreluFactorLoop {
  PreluView dims;
  const T* x;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t k) const {
    T sum{};
    for (int64_t i = threadIdx.x; i < dims.outer * dims.inner; i += kThreads) {
      const int64_t at = (i / dims.inner * dims.factors + k) * dims.inner + i % dims.inner;
      sum += x[at] > T{0} ? T{} : grad[at] * x[at];
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0) out[k] = sum;
  }
};

template <class From, class To>
struct CastLoop {
  const From* x;
  To* out;
  __device__ To element(int64_t i) const { return static_cast<To>(x[i]); }
};
template <class T>
struct NoteLoop {
  const T* x;
  uint32_t* word;
  __device__ void operator()(int64_t i) const {
    if (!isfinite(x[i])) *word = word_of_nonfinite(x[i]);
  }
};
template <class Half>
struct WidenLoop {
  const Half* x;
  float* out;
  __device__ float element(int64_t i) const { return static_cast<float>(x[i]); }
};
__device__ inline __half rounded(float x, __half*) {
  return __float2half_rn(x);
}
__device__ inline __nv_bfloat16 rounded(float x, __nv_bfloat16*) {
  return __float2bfloat16_rn(x);
}
template <class Half>
struct RoundLoop {
  const float* x;
  Half* out;
  __device__ Half element(int64_t i) const { return rounded(x[i], out); }
};
struct NotLoop {
  const bool* x;
  bool* out;
  __device__ bool element(int64_t i) const { return !x[i]; }
};
template <class T>
struct SelectLoop {
  const bool* truth;
  const T* x;
  const T* y;
  T* out;
  __device__ T element(int64_t i) const {
    const T* from = truth[i] ? x : y;
    return from != nullptr ? from[i] : T{};
  }
};

}  // namespace

template <class T>
UnaryFunctions<T> unary_functions() {
  static constexpr UnaryFunction<T> kAll[] = {
      function<Relu, T>("relu"),
      function<Relu6, T>("relu6"),
      function<Brelu, T>("brelu"),
      function<LeakyRelu, T>("leaky_relu"),
      function<HardSigmoid, T>("hard_sigmoid"),
      function<HardSwish, T>("hard_swish"),
      function<SoftShrink, T>("softshrink"),
      function<HardShrink, T>("hard_shrink"),
      function<ThresholdedRelu, T>("thresholded_relu"),
      function<Abs, T>("abs"),
      function<Flat<Floor>, T>("floor"),
      function<Flat<Ceil>, T>("ceil"),
      function<Flat<Round>, T>("round"),
      {"sign", value<Sign, T>, nullptr},
      function<Square, T>("square"),
      function<Softsign, T>("softsign"),
      function<Sqrt, T>("sqrt"),
      function<Rsqrt, T>("rsqrt"),
      function<Reciprocal, T>("reciprocal"),
      function<Sin, T>("sin"),
      function<Cos, T>("cos"),
      function<Asin, T>("asin"),
      function<Acos, T>("acos"),
      function<Atan, T>("atan"),
      function<Sinh, T>("sinh"),
      function<Cosh, T>("cosh"),
      function<Exp, T>("exp"),
      function<Sigmoid, T>("sigmoid"),
      function<Tanh, T>("tanh"),
      function<Log, T>("log"),
      function<Log1p, T>("log1p"),
      function<Erf, T>("erf"),
      function<Elu, T>("elu"),
      function<Swish, T>("swish"),
      function<Gelu, T>("gelu"),
      function<Softplus, T>("softplus"),
      function<LogSigmoid, T>("logsigmoid"),
      function<SoftRelu, T>("soft_relu"),
      function<Stanh, T>("stanh"),
      function<TanhShrink, T>("tanh_shrink"),
  };
  return {kAll, static_cast<int>(sizeof(kAll) / sizeof(kAll[0]))};
}

template <class T>
void pow(RawStream stream, const Scalar<T>& factor, const T* x, T* out, int64_t n) {
  launch_each(stream, "pow", n, PowLoop<T>{factor, x, out});
}
template <class T>
void pow_back(RawStream stream, const Scalar<T>& factor, const T* x, const T* grad, T* out,
              int64_t n) {
  launch_each(stream, "pow_back", n, PowBackLoop<T>{factor, x, grad, out});
}

template <class T>
void clip(RawStream stream, const Scalar<T>& low, const Scalar<T>& high, const T* x, T* out,
          int64_t n) {
  launch_each(stream, "clip", n, ClipLoop<T>{low, high, x, out});
}
template <class T>
void clip_back(RawStream stream, const Scalar<T>& low, const Scalar<T>& high, const T* x,
               const T* grad, T* out, int64_t n) {
  launch_each(stream, "clip_back", n, ClipBackLoop<T>{low, high, x, grad, out});
}

template <class T>
void prelu(RawStream stream, const PreluView& dims, const T* x, const T* alpha, T* out) {
  launch_each(stream, "prelu", dims.numel(), PreluLoop<T>{dims, x, alpha, x, out});
}
template <class T>
void prelu_back(RawStream stream, const PreluView& dims, const T* x, const T* alpha, const T* grad,
                T* x_grad, T* alpha_grad) {
  if (x_grad != nullptr) {
    launch_each(stream, "prelu_back", dims.numel(), PreluLoop<T>{dims, x, alpha, grad, x_grad});
  }
  if (alpha_grad != nullptr) {
    launch_each_row(stream, "prelu_back", dims.factors,
                    PreluFactorLoop<T>{dims, x, grad, alpha_grad});
  }
}

template <class From, class To>
void cast(RawStream stream, const From* x, To* out, int64_t n) {
  launch_each(stream, "cast", n, CastLoop<From, To>{x, out});
}

template <class T>
void note_nonfinite(RawStream stream, const T* x, uint32_t* word, int64_t n) {
  launch_each(stream, "note_nonfinite", n, NoteLoop<T>{x, word});
}

void widen_halves(RawStream stream, bool brain, const uint16_t* x, float* out, int64_t n) {
  const auto put = [&]<class Half>(const Half* words) {
    launch_each(stream, "widen_halves", n, WidenLoop<Half>{words, out});
  };
  if (brain) {
    put(reinterpret_cast<const __nv_bfloat16*>(x));
  } else {
    put(reinterpret_cast<const __half*>(x));
  }
}
void round_to_halves(RawStream stream, bool brain, const float* x, uint16_t* out, int64_t n) {
  const auto put = [&]<class Half>(Half* words) {
    launch_each(stream, "round_to_halves", n, RoundLoop<Half>{x, words});
  };
  if (brain) {
    put(reinterpret_cast<__nv_bfloat16*>(out));
  } else {
    put(reinterpret_cast<__half*>(out));
  }
}

void logical_not(RawStream stream, const bool* x, bool* out, int64_t n) {
  launch_each(stream, "logical_not", n, NotLoop{x, out});
}

template <class T>
void select(RawStream stream, const bool* truth, const T* x, const T* y, T* out, int64_t n) {
  launch_each(stream, "select", n, SelectLoop<T>{truth, x, y, out});
}

#define FLEET_INSTANTIATE(T)                                                                     \
  template UnaryFunctions<T> unary_functions();                                                  \
  template void pow(RawStream, const Scalar<T>&, const T*, T*, int64_t);                         \
  template void pow_back(RawStream, const Scalar<T>&, const T*, const T*, T*, int64_t);          \
  template void clip(RawStream, const Scalar<T>&, const Scalar<T>&, const T*, T*, int64_t);      \
  template void clip_back(RawStream, const Scalar<T>&, const Scalar<T>&, const T*, const T*, T*, \
                          int64_t);                                                              \
  template void prelu(RawStream, const PreluView&, const T*, const T*, T*);                      \
  template void prelu_back(RawStream, const PreluView&, const T*, const T*, const T*, T*, T*);   \
  template void note_nonfinite(RawStream, const T*, uint32_t*, int64_t)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE
template UnaryFunctions<__half> unary_functions();
template UnaryFunctions<__nv_bfloat16> unary_functions();

#define FLEET_CASTS(From)                                        \
  template void cast(RawStream, const From*, bool*, int64_t);    \
  template void cast(RawStream, const From*, uint8_t*, int64_t); \
  template void cast(RawStream, const From*, int8_t*, int64_t);  \
  template void cast(RawStream, const From*, int16_t*, int64_t); \
  template void cast(RawStream, const From*, int32_t*, int64_t); \
  template void cast(RawStream, const From*, int64_t*, int64_t); \
  template void cast(RawStream, const From*, float*, int64_t);   \
  template void cast(RawStream, const From*, double*, int64_t);  \
  template void select(RawStream, const bool*, const From*, const From*, From*, int64_t)
FLEET_CASTS(bool);
FLEET_CASTS(uint8_t);
FLEET_CASTS(int8_t);
FLEET_CASTS(int16_t);
FLEET_CASTS(int32_t);
FLEET_CASTS(int64_t);
FLEET_CASTS(float);
FLEET_CASTS(double);
#undef FLEET_CASTS

}  // namespace fleet::fluid::cuda
