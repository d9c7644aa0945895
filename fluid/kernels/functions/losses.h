// Losses that compare values, for every device. Some, and their gradients, compute each element of
// their outputs from the same element of their inputs. These are structs: operator()(in, out)
// computes one element; in[k] is that of input k, out[k] that of output k.
// fluid/kernels/loss/element_losses.h says which slots they are.
#pragma once

#include <cmath>
#include <cstdint>

#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid::functions {

// log(1 + e^x)
template <class T>
FLEET_HOST_DEVICE T softplus(T x) {
  return (x > T{} ? x : T{}) + std::log1p(std::exp(-std::abs(x)));
}

template <class T>
struct HingeLoss {
  static constexpr int kInputs = 2;
  static constexpr int kOutputs = 1;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T margin = T{1} - (T{2} * in[1] - T{1}) * in[0];
    out[0] = margin < T{} ? T{} : margin;
  }
};
template <class T>
struct HingeBack {
  static constexpr int kInputs = 3;
  static constexpr int kOutputs = 1;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T sign = T{2} * in[1] - T{1};
    out[0] = T{1} - sign * in[0] > T{} ? -sign * in[2] : T{};
  }
};

template <class T>
struct LogLoss {
  static constexpr int kInputs = 2;
  static constexpr int kOutputs = 1;
  T epsilon;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T p = in[0];
    const T z = in[1];
    out[0] = -z * std::log(p + epsilon) - (T{1} - z) * std::log(T{1} - p + epsilon);
  }
};
template <class T>
struct LogLossBack {
  static constexpr int kInputs = 3;
  static constexpr int kOutputs = 1;
  T epsilon;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T p = in[0];
    const T z = in[1];
    out[0] = in[2] * (-z / (p + epsilon) + (T{1} - z) / (T{1} - p + epsilon));
  }
};

template <class T>
struct HuberLoss {
  static constexpr int kInputs = 2;
  static constexpr int kOutputs = 2;
  T delta;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T r = in[1] - in[0];
    const T size = std::abs(r);
    out[0] = r;
    out[1] = size <= delta ? T(0.5) * r * r : delta * (size - T(0.5) * delta);
  }
};
template <class T>
struct HuberBack {
  static constexpr int kInputs = 2;
  static constexpr int kOutputs = 2;
  T delta;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T r = in[0];
    const T back = (r > delta ? delta : r < -delta ? -delta : r) * in[1];
    out[0] = -back;
    out[1] = back;
  }
};

template <class T>
struct RankLoss {
  static constexpr int kInputs = 3;
  static constexpr int kOutputs = 1;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T d = in[0] - in[1];
    out[0] = softplus(d) - in[2] * d;
  }
};
template <class T>
struct RankBack {
  static constexpr int kInputs = 4;
  static constexpr int kOutputs = 2;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T d = in[0] - in[1];
    out[0] = in[3] * (T{1} / (T{1} + std::exp(-d)) - in[2]);
    out[1] = -out[0];
  }
};

template <class T>
struct MarginRankLoss {
  static constexpr int kInputs = 3;
  static constexpr int kOutputs = 2;
  T margin;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    const T loss = margin - in[2] * (in[0] - in[1]);
    out[0] = loss > T{} ? loss : T{};
    out[1] = loss > T{} ? T{1} : T{};
  }
};
template <class T>
struct MarginRankBack {
  static constexpr int kInputs = 3;
  static constexpr int kOutputs = 2;
  FLEET_HOST_DEVICE void operator()(const T* in, T* out) const {
    out[1] = in[0] * in[1] * in[2];
    out[0] = -out[1];
  }
};

// The arrays of such a loss; an output that nobody wants is null, unless it is the only one.
template <class T, class F>
struct LossArrays {
  const T* in[F::kInputs] = {};
  T* out[F::kOutputs] = {};

  FLEET_HOST_DEVICE void compute(const F& f, int64_t i) const {
    T values[F::kInputs];
    T results[F::kOutputs];
    for (int k = 0; k < F::kInputs; ++k) values[k] = in[k][i];
    f(values, results);
    for (int k = 0; k < F::kOutputs; ++k) {
      if (F::kOutputs == 1 || out[k] != nullptr) out[k][i] = results[k];
    }
  }
};

// Of a difference: squared below 1 / sigma^2.
template <class T>
FLEET_HOST_DEVICE T smooth_l1(T d, T sigma2) {
  const T size = std::abs(d);
  return size < T{1} / sigma2 ? T(0.5) * d * d * sigma2 : size - T(0.5) / sigma2;
}
template <class T>
FLEET_HOST_DEVICE T smooth_l1_slope(T d, T sigma2) {
  const T sign = d > T{} ? T{1} : d < T{} ? T{-1} : T{};
  return std::abs(d) < T{1} / sigma2 ? sigma2 * d : sign;
}

// The share of each class in the others' gradients of bpr_loss, for x_j - x_label.
template <class T>
FLEET_HOST_DEVICE T bpr_slope(T d, T factor) {
  return factor / (T{1} + std::exp(-d));
}

}  // namespace fleet::fluid::functions
