// Activations that need no function above arithmetic, square roots and the library's scalar
// functions; smooth_activation.cc has those made of exponentials.
#include "fluid/ops/math/activation.h"

#include "fluid/kernels/cpu/math/unary.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/kernels/functions/activations.h"

namespace fleet::fluid::cpu {
namespace {

using namespace functions;  // NOLINT(google-build-using-namespace)

// For functions that are flat almost everywhere.
template <class T>
std::unique_ptr<Prepared> prepare_zero(PrepareContext& context) {
  const Shape shape = context.in("Out@GRAD").shape;
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    Tensor& tensor = c.output(out);
    zero_in_tiles(c.tiles(), tensor.raw(), tensor.bytes());
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

void add_powers(KernelTable& table) {
  add_each<Square>(table, "square");
  add_each<Softsign>(table, "softsign");
  add_each<Sqrt>(table, "sqrt");
  add_each<Rsqrt>(table, "rsqrt");
  add_each<Reciprocal>(table, "reciprocal");
}

void add_angles(KernelTable& table) {
  add_each<Sin>(table, "sin");
  add_each<Cos>(table, "cos");
  add_each<Asin>(table, "asin");
  add_each<Acos>(table, "acos");
  add_each<Atan>(table, "atan");
  add_each<Sinh>(table, "sinh");
  add_each<Cosh>(table, "cosh");
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
