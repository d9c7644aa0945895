// Values of binary elementwise ops; elementwise_grad.cc has the gradients.
#include "base/error.h"
#include "fluid/kernels/cpu/math/binary.h"
#include "fluid/kernels/functions/binary.h"

namespace fleet::fluid::cpu {
namespace {

using namespace functions;  // NOLINT(google-build-using-namespace)

[[noreturn]] void throw_division_by_zero() {
  throw_error(ErrorCode::kNumerics, {.what = "a whole number was divided by 0",
                                     .where = "op elementwise_div, elementwise_mod or "
                                              "elementwise_floordiv, variable Y",
                                     .expected = "numbers other than 0 in Y",
                                     .got = "0",
                                     .fix = "check the values of Y, or cast to floats"});
}

// Cut towards 0. The one quotient that does not fit is the smallest number again.
template <class T>
T whole_quotient(T x, T y) {
  if (y == 0) throw_division_by_zero();
  if (y == -1) return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(x));
  return x / y;
}

struct Div {
  template <class T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      return whole_quotient(x, y);
    } else {
      return RealDiv::value(x, y);
    }
  }
};

struct FloorDiv {
  template <class T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      const T quotient = whole_quotient(x, y);
      const bool cut = y != -1 && x % y != 0 && (x < 0) != (y < 0);
      return cut ? quotient - 1 : quotient;
    } else {
      return RealFloorDiv::value(x, y);
    }
  }
};

struct Mod {
  template <class T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      if (y == 0) throw_division_by_zero();
      if (y == -1) return 0;
      const T rest = x % y;
      return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
    } else {
      return RealMod::value(x, y);
    }
  }
};

// As Paddle has them for whole numbers: the quotient cut towards 0, the rest with X's sign.
struct CutDiv {
  template <class T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      return whole_quotient(x, y);
    } else {
      return FloorDiv::value(x, y);
    }
  }
};

struct CutMod {
  template <class T>
  static T value(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      if (y == 0) throw_division_by_zero();
      return y == -1 ? 0 : x % y;
    } else {
      return Mod::value(x, y);
    }
  }
};

template <class Op>
void add(KernelTable& table, const std::string& type) {
  for_types<float, double, int32_t, int64_t>([&]<class T>(std::type_identity<T>) {
    const auto prepare = [](PrepareContext& context) {
      return prepare_binary<T, T>(context, context.attrs<ElementwiseAttrs>().axis,
                                  binary_row<Op, T, T>);
    };
    table.add_last(
        type, DeviceKind::kCpu, dtype_of<T>(),
        {.name = "loop", .prepare = prepare, .images = ImageOrder::kElements, .in_place = true});
  });
}

template <class Op, class Paddle>
void add_floor_division(KernelTable& table, const std::string& type) {
  for_types<float, double, int32_t, int64_t>([&]<class T>(std::type_identity<T>) {
    table.add_last(type, DeviceKind::kCpu, dtype_of<T>(),
                   {"loop", [](PrepareContext& context) {
                      const auto& attrs = context.attrs<FloorDivisionAttrs>();
                      return prepare_binary<T, T>(
                          context, attrs.axis,
                          attrs.paddle_form ? binary_row<Paddle, T, T> : binary_row<Op, T, T>);
                    }});
  });
}

}  // namespace

void register_elementwise(KernelTable& table) {
  add<Add>(table, "elementwise_add");
  add<Sub>(table, "elementwise_sub");
  add<Mul>(table, "elementwise_mul");
  add<Div>(table, "elementwise_div");
  add_floor_division<FloorDiv, CutDiv>(table, "elementwise_floordiv");
  add_floor_division<Mod, CutMod>(table, "elementwise_mod");
  add<Max>(table, "elementwise_max");
  add<Min>(table, "elementwise_min");
  add<Pow>(table, "elementwise_pow");
  register_elementwise_grad(table);
}

}  // namespace fleet::fluid::cpu
