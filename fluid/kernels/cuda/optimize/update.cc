// Update ops.
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/optimize/update_inputs_impl.h"
#include "fluid/ops/optimize/optimize.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_sgd(PrepareContext& context) {
  Update<T> update(context);
  return make_prepared([=](const KernelContext& c) mutable {
    const UpdateArgs<T> all = update.at(c, true);
    if (update.gradient.sparse()) keep_rest(c, all.param, all.n);
    const SgdArgs<T> args = {
        .param = all.param.from, .grad = all.grad, .rate = all.rate, .param_out = all.param.to};
    sgd<T>(target_of(c), args, all.n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_momentum(PrepareContext& context) {
  const auto attrs = context.attrs<MomentumAttrs>();
  Update<T> update(context);
  const State<T> velocity = state_of<T>(context, "Velocity", "VelocityOut");
  return make_prepared([=](const KernelContext& c) mutable {
    const UpdateArgs<T> all = update.at(c);
    const StateArrays<T> velocities = velocity.at(c);
    const MomentumArgs<T> args = {.param = all.param.from,
                                  .grad = all.grad,
                                  .velocity = velocities.from,
                                  .rate = all.rate,
                                  .param_out = all.param.to,
                                  .velocity_out = velocities.to,
                                  .mu = static_cast<T>(attrs.mu),
                                  .nesterov = attrs.use_nesterov};
    momentum<T>(target_of(c), args, all.n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_adam(PrepareContext& context) {
  const auto attrs = context.attrs<AdamAttrs>();
  Update<T> update(context);
  const State<T> moment1 = state_of<T>(context, "Moment1", "Moment1Out");
  const State<T> moment2 = state_of<T>(context, "Moment2", "Moment2Out");
  const int power1 = scalar_input<T>(context, "Beta1Pow");
  const int power2 = scalar_input<T>(context, "Beta2Pow");
  const Shape one = context.in("Beta1Pow").shape;
  const int power1_out = context.set_output("Beta1PowOut", one, dtype_of<T>());
  const int power2_out = context.set_output("Beta2PowOut", one, dtype_of<T>());
  const bool sparse = update.gradient.sparse();
  return make_prepared([=](const KernelContext& c) mutable {
    const UpdateArgs<T> all = update.at(c, attrs.lazy_mode);
    const StateArrays<T> m = moment1.at(c);
    const StateArrays<T> v = moment2.at(c);
    if (sparse && attrs.lazy_mode) {
      for (const StateArrays<T>& state : {all.param, m, v}) keep_rest(c, state, all.n);
    }
    const AdamArgs<T> args = {.param = all.param.from,
                              .grad = all.grad,
                              .moment1 = m.from,
                              .moment2 = v.from,
                              .rate = all.rate,
                              .power1 = c.in<T>(power1),
                              .power2 = c.in<T>(power2),
                              .param_out = all.param.to,
                              .moment1_out = m.to,
                              .moment2_out = v.to,
                              .power1_out = out_or_null<T>(c, power1_out),
                              .power2_out = out_or_null<T>(c, power2_out),
                              .beta1 = static_cast<T>(attrs.beta1),
                              .beta2 = static_cast<T>(attrs.beta2),
                              .epsilon = static_cast<T>(attrs.epsilon),
                              .ahead = attrs.paddle_form && sparse};
    adam<T>(target_of(c), args, all.n);
  });
}

}  // namespace

void register_update(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(),
                     {.name = "loop", .prepare = prepare, .takes_rows = true});
    };
    list("sgd", prepare_sgd<T>);
    list("momentum", prepare_momentum<T>);
    list("adam", prepare_adam<T>);
  });
}

}  // namespace fleet::fluid::cuda
