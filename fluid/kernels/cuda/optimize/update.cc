// Update ops.
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/ops/optimize/optimize.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_sgd(PrepareContext& context) {
  const Shape shape = context.in("Param").shape;
  const int64_t n = shape.numel();
  const int param = context.input("Param");
  const int grad = state_input<T>(context, "Grad");
  const int rate = scalar_input<T>(context, "LearningRate");
  const int out = context.set_output("ParamOut", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const SgdArgs<T> args = {.param = c.in<T>(param),
                             .grad = c.in<T>(grad),
                             .rate = c.in<T>(rate),
                             .param_out = c.out<T>(out)};
    sgd<T>(target_of(c), args, n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_momentum(PrepareContext& context) {
  const auto attrs = context.attrs<MomentumAttrs>();
  const Shape shape = context.in("Param").shape;
  const int64_t n = shape.numel();
  const int param = context.input("Param");
  const int grad = state_input<T>(context, "Grad");
  const int velocity = state_input<T>(context, "Velocity");
  const int rate = scalar_input<T>(context, "LearningRate");
  const int out = context.set_output("ParamOut", shape, dtype_of<T>());
  const int velocity_out = context.set_output("VelocityOut", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const MomentumArgs<T> args = {.param = c.in<T>(param),
                                  .grad = c.in<T>(grad),
                                  .velocity = c.in<T>(velocity),
                                  .rate = c.in<T>(rate),
                                  .param_out = c.out<T>(out),
                                  .velocity_out = c.out<T>(velocity_out),
                                  .mu = static_cast<T>(attrs.mu),
                                  .nesterov = attrs.use_nesterov};
    momentum<T>(target_of(c), args, n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_adam(PrepareContext& context) {
  const auto attrs = context.attrs<AdamAttrs>();
  const Shape shape = context.in("Param").shape;
  const int64_t n = shape.numel();
  const int param = context.input("Param");
  const int grad = state_input<T>(context, "Grad");
  const int moment1 = state_input<T>(context, "Moment1");
  const int moment2 = state_input<T>(context, "Moment2");
  const int rate = scalar_input<T>(context, "LearningRate");
  const int power1 = scalar_input<T>(context, "Beta1Pow");
  const int power2 = scalar_input<T>(context, "Beta2Pow");
  const Shape one = context.in("Beta1Pow").shape;
  const int out = context.set_output("ParamOut", shape, dtype_of<T>());
  const int moment1_out = context.set_output("Moment1Out", shape, dtype_of<T>());
  const int moment2_out = context.set_output("Moment2Out", shape, dtype_of<T>());
  const int power1_out = context.set_output("Beta1PowOut", one, dtype_of<T>());
  const int power2_out = context.set_output("Beta2PowOut", one, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const AdamArgs<T> args = {.param = c.in<T>(param),
                              .grad = c.in<T>(grad),
                              .moment1 = c.in<T>(moment1),
                              .moment2 = c.in<T>(moment2),
                              .rate = c.in<T>(rate),
                              .power1 = c.in<T>(power1),
                              .power2 = c.in<T>(power2),
                              .param_out = c.out<T>(out),
                              .moment1_out = c.out<T>(moment1_out),
                              .moment2_out = c.out<T>(moment2_out),
                              .power1_out = out_or_null<T>(c, power1_out),
                              .power2_out = out_or_null<T>(c, power2_out),
                              .beta1 = static_cast<T>(attrs.beta1),
                              .beta2 = static_cast<T>(attrs.beta2),
                              .epsilon = static_cast<T>(attrs.epsilon)};
    adam<T>(target_of(c), args, n);
  });
}

}  // namespace

void register_update(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    list("sgd", prepare_sgd<T>);
    list("momentum", prepare_momentum<T>);
    list("adam", prepare_adam<T>);
  });
}

}  // namespace fleet::fluid::cuda
