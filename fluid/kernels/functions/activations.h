// Elementwise functions that need no function above arithmetic, square roots and the library's
// scalar functions, for every device.
#pragma once

#include <cmath>
#include <cstdint>

#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid {

// The numbers of an op's attributes, in the order of its attribute struct.
struct UnaryParams {
  double a = 0;
  double b = 0;
  double c = 0;
  double d = 0;
};

// X of op prelu as [outer, factors, inner]: which factor of Alpha belongs to an element.
struct PreluView {
  int64_t outer = 1;
  int64_t factors = 1;
  int64_t inner = 1;
  int64_t numel() const { return outer * factors * inner; }
};

namespace functions {

// Each: its value, and its derivative times the incoming gradient g, in terms of X or of Out,
// whichever the gradient op has.
struct Relu {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return x > T{0} ? x : x == x ? T{0} : x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T out, T g) {
    return out > T{0} ? g : T{0};
  }
};
struct Relu6 {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams p, T x) {
    const T cap = static_cast<T>(p.a);
    return x > T{0} ? (x < cap ? x : cap) : x == x ? T{0} : x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams p, T out, T g) {
    return out > T{0} && out < static_cast<T>(p.a) ? g : T{0};
  }
};
struct Brelu {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams p, T x) {
    const T low = static_cast<T>(p.a);
    const T high = static_cast<T>(p.b);
    return x < low ? low : x > high ? high : x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams p, T x, T g) {
    return x > static_cast<T>(p.a) && x < static_cast<T>(p.b) ? g : T{0};
  }
};
struct LeakyRelu {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams p, T x) {
    return x > T{0} ? x : static_cast<T>(p.a) * x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams p, T x, T g) {
    return x > T{0} ? g : static_cast<T>(p.a) * g;
  }
};
struct HardSigmoid {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams p, T x) {
    const T y = static_cast<T>(p.a) * x + static_cast<T>(p.b);
    return y < T{0} ? T{0} : y > T{1} ? T{1} : y;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams p, T out, T g) {
    return out > T{0} && out < T{1} ? static_cast<T>(p.a) * g : T{0};
  }
};
// Parameters: threshold, scale, offset, paddle_form.
struct HardSwish {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams p, T x) {
    const T cap = static_cast<T>(p.a);
    const T y = x + static_cast<T>(p.c);
    return x * (y < T{0} ? T{0} : y > cap ? cap : y) / static_cast<T>(p.b);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams p, T x, T g) {
    const T cap = static_cast<T>(p.a);
    const T y = x + static_cast<T>(p.c);
    const T inside = y > T{0} ? x + y : T{0};
    if (p.d != 0 && !(y < cap)) return g;
    return g * (y < cap ? inside : cap) / static_cast<T>(p.b);
  }
};
struct SoftShrink {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams p, T x) {
    const T lambda = static_cast<T>(p.a);
    return x > lambda ? x - lambda : x < -lambda ? x + lambda : x == x ? T{0} : x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams p, T x, T g) {
    const T lambda = static_cast<T>(p.a);
    return x > lambda || x < -lambda ? g : T{0};
  }
};
struct HardShrink {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams p, T x) {
    return std::abs(x) <= static_cast<T>(p.a) ? T{0} : x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams p, T x, T g) {
    return std::abs(x) <= static_cast<T>(p.a) ? T{0} : g;
  }
};
struct ThresholdedRelu {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams p, T x) {
    return x <= static_cast<T>(p.a) ? T{0} : x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams p, T x, T g) {
    return x > static_cast<T>(p.a) ? g : T{0};
  }
};
struct Square {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return x * x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return T{2} * g * x;
  }
};
struct Abs {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return static_cast<T>(std::abs(x));
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return x > T{0} ? g : x < T{0} ? -g : T{0};
  }
};
struct Floor {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::floor(x);
  }
};
struct Ceil {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::ceil(x);
  }
};
struct Round {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::round(x);
  }
};
struct Sign {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return x > T{0} ? T{1} : x < T{0} ? T{-1} : x;
  }
};
struct Softsign {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return x / (T{1} + std::abs(x));
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    const T y = T{1} + std::abs(x);
    return g / (y * y);
  }
};
struct Sqrt {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::sqrt(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T out, T g) {
    return T(0.5) * g / out;
  }
};
struct Rsqrt {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return T{1} / std::sqrt(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T out, T g) {
    return T(-0.5) * g * out * out * out;
  }
};
struct Reciprocal {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return T{1} / x;
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T out, T g) {
    return -g * out * out;
  }
};
struct Sin {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::sin(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return g * std::cos(x);
  }
};
struct Cos {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::cos(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return -g * std::sin(x);
  }
};
struct Asin {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::asin(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return g / std::sqrt(T{1} - x * x);
  }
};
struct Acos {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::acos(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return -g / std::sqrt(T{1} - x * x);
  }
};
struct Atan {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::atan(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return g / (T{1} + x * x);
  }
};
struct Sinh {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::sinh(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return g * std::cosh(x);
  }
};
struct Cosh {
  template <class T>
  FLEET_HOST_DEVICE static T one(UnaryParams, T x) {
    return std::cosh(x);
  }
  template <class T>
  FLEET_HOST_DEVICE static T back(UnaryParams, T x, T g) {
    return g * std::sinh(x);
  }
};

}  // namespace functions

}  // namespace fleet::fluid
