// Elementwise functions of two numbers, for every device.
#pragma once

#include <cmath>
#include <type_traits>

#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid::functions {

struct Add {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    return x + y;
  }
};
struct Sub {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    return x - y;
  }
};
struct Mul {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    return x * y;
  }
};
struct Max {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    return x > y ? x : y;
  }
};
struct Min {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    return x < y ? x : y;
  }
};
struct Pow {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(std::llrint(std::pow(static_cast<double>(x), static_cast<double>(y))));
    } else {
      return std::pow(x, y);
    }
  }
};

// Quotients and rests of floats; those of whole numbers are the CPU's alone, since 0 is an error.
struct RealDiv {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    return x / y;
  }
};
struct RealFloorDiv {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    return std::floor(x / y);
  }
};
struct RealMod {
  template <class T>
  FLEET_HOST_DEVICE static T value(T x, T y) {
    const T rest = std::fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
  }
};
struct Less {
  template <class T>
  FLEET_HOST_DEVICE static bool value(T x, T y) {
    return x < y;
  }
};
struct LessEqual {
  template <class T>
  FLEET_HOST_DEVICE static bool value(T x, T y) {
    return x <= y;
  }
};
struct Greater {
  template <class T>
  FLEET_HOST_DEVICE static bool value(T x, T y) {
    return x > y;
  }
};
struct GreaterEqual {
  template <class T>
  FLEET_HOST_DEVICE static bool value(T x, T y) {
    return x >= y;
  }
};
struct Equal {
  template <class T>
  FLEET_HOST_DEVICE static bool value(T x, T y) {
    return x == y;
  }
};
struct NotEqual {
  template <class T>
  FLEET_HOST_DEVICE static bool value(T x, T y) {
    return x != y;
  }
};
struct And {
  FLEET_HOST_DEVICE static bool value(bool x, bool y) { return x && y; }
};
struct Or {
  FLEET_HOST_DEVICE static bool value(bool x, bool y) { return x || y; }
};
struct Xor {
  FLEET_HOST_DEVICE static bool value(bool x, bool y) { return x != y; }
};

// Each: what an element passes back for an incoming gradient g.
struct Negative {
  template <class T>
  FLEET_HOST_DEVICE static T back(T, T, T g) {
    return -g;
  }
};
struct TimesX {
  template <class T>
  FLEET_HOST_DEVICE static T back(T x, T, T g) {
    return g * x;
  }
};
struct TimesY {
  template <class T>
  FLEET_HOST_DEVICE static T back(T, T y, T g) {
    return g * y;
  }
};
struct DivToX {
  template <class T>
  FLEET_HOST_DEVICE static T back(T, T y, T g) {
    return g / y;
  }
};
struct DivToY {
  template <class T>
  FLEET_HOST_DEVICE static T back(T x, T y, T g) {
    return -g * (x / y) / y;
  }
};
// Ties go to Y.
struct WhereXIsLarger {
  template <class T>
  FLEET_HOST_DEVICE static T back(T x, T y, T g) {
    return x > y ? g : T{};
  }
};
struct WhereXIsNotLarger {
  template <class T>
  FLEET_HOST_DEVICE static T back(T x, T y, T g) {
    return x > y ? T{} : g;
  }
};
struct WhereXIsSmaller {
  template <class T>
  FLEET_HOST_DEVICE static T back(T x, T y, T g) {
    return x < y ? g : T{};
  }
};
struct WhereXIsNotSmaller {
  template <class T>
  FLEET_HOST_DEVICE static T back(T x, T y, T g) {
    return x < y ? T{} : g;
  }
};
struct PowToX {
  template <class T>
  FLEET_HOST_DEVICE static T back(T x, T y, T g) {
    return g * y * std::pow(x, y - 1);
  }
};
struct PowToY {
  template <class T>
  FLEET_HOST_DEVICE static T back(T x, T y, T g) {
    return g * std::log(x) * std::pow(x, y);
  }
};

}  // namespace fleet::fluid::functions
