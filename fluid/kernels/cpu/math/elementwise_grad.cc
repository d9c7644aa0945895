// Gradients of binary elementwise ops.
#include "fluid/kernels/cpu/math/binary.h"
#include "fluid/kernels/functions/binary.h"

namespace fleet::fluid::cpu {
namespace {

using namespace functions;  // NOLINT(google-build-using-namespace)

// g itself.
struct Same {};

template <class Op, class T>
constexpr RowGradient<T> gradient_of() {
  if constexpr (std::is_same_v<Op, Same>) {
    return nullptr;
  } else {
    return row_gradient<Op, T>;
  }
}

template <class ToX, class ToY>
void add(KernelTable& table, const char* type) {
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    const auto prepare = [](PrepareContext& context) {
      return prepare_binary_grad<T>(context, gradient_of<ToX, T>(), gradient_of<ToY, T>());
    };
    table.add_last(type, DeviceKind::kCpu, dtype_of<T>(),
                   {.name = "loop", .prepare = prepare, .images = ImageOrder::kElements});
  });
}

}  // namespace

void register_elementwise_grad(KernelTable& table) {
  add<Same, Same>(table, "elementwise_add_grad");
  add<Same, Negative>(table, "elementwise_sub_grad");
  add<TimesY, TimesX>(table, "elementwise_mul_grad");
  add<DivToX, DivToY>(table, "elementwise_div_grad");
  add<WhereXIsLarger, WhereXIsNotLarger>(table, "elementwise_max_grad");
  add<WhereXIsSmaller, WhereXIsNotSmaller>(table, "elementwise_min_grad");
  add<PowToX, PowToY>(table, "elementwise_pow_grad");
}

}  // namespace fleet::fluid::cpu
