// Update ops. Element i of every state depends on element i alone, by the same operations at every
// position, so a slice of a parameter moves by the bits of the whole.
#include <cmath>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/optimize.h"

namespace fleet::fluid::cpu {
namespace {

// Checks that a state has the parameter's shape and type.
template <class T>
int like_param(const PrepareContext& context, const char* slot) {
  const ValueSpec& param = context.in("Param");
  const ValueSpec& state = context.in(slot);
  context.require(state.kind == ValueKind::kTensor && state.dtype == dtype_of<T>() &&
                      state.shape.numel() == param.shape.numel(),
                  slot, str_cat(dtype_name(param.dtype), param.shape, ", like Param"),
                  str_cat(dtype_name(state.dtype), state.shape));
  return context.input(slot);
}

template <class T>
int scalar(const PrepareContext& context, const char* slot) {
  const ValueSpec& spec = context.in(slot);
  context.require(spec.dtype == dtype_of<T>() && spec.shape.numel() == 1, slot,
                  str_cat("one element of ", dtype_name(dtype_of<T>())),
                  str_cat(dtype_name(spec.dtype), spec.shape));
  return context.input(slot);
}

template <class T>
std::unique_ptr<Prepared> prepare_sgd(PrepareContext& context) {
  const Shape shape = context.in("Param").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int param = context.input("Param");
  const int grad = like_param<T>(context, "Grad");
  const int rate = scalar<T>(context, "LearningRate");
  const int out = context.set_output("ParamOut", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* params = c.in<T>(param);
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    const T lr = *c.in<T>(rate);
    for (size_t i = 0; i < n; ++i) outs[i] = params[i] - lr * grads[i];
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_momentum(PrepareContext& context) {
  const auto attrs = context.attrs<MomentumAttrs>();
  const Shape shape = context.in("Param").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int param = context.input("Param");
  const int grad = like_param<T>(context, "Grad");
  const int velocity = like_param<T>(context, "Velocity");
  const int rate = scalar<T>(context, "LearningRate");
  const int out = context.set_output("ParamOut", shape, dtype_of<T>());
  const int velocity_out = context.set_output("VelocityOut", shape, dtype_of<T>());
  const T mu = static_cast<T>(attrs.mu);
  const bool nesterov = attrs.use_nesterov;
  return make_prepared([=](const KernelContext& c) {
    const T* params = c.in<T>(param);
    const T* grads = c.in<T>(grad);
    const T* velocities = c.in<T>(velocity);
    T* outs = c.out<T>(out);
    T* velocity_outs = c.out<T>(velocity_out);
    const T lr = *c.in<T>(rate);
    for (size_t i = 0; i < n; ++i) {
      const T g = grads[i];
      const T v = mu * velocities[i] + g;
      const T step = nesterov ? g + mu * v : v;
      velocity_outs[i] = v;
      outs[i] = params[i] - lr * step;
    }
  });
}

// The loop of adam on plain arrays, states updated in place or elsewhere.
template <class T>
struct AdamStep {
  const T* param;
  const T* grad;
  const T* moment1;
  const T* moment2;
  T* param_out;
  T* moment1_out;
  T* moment2_out;

  void run(size_t n, T beta1, T beta2, T epsilon, T rate) const {
    for (size_t i = 0; i < n; ++i) {
      const T g = grad[i];
      const T m = beta1 * moment1[i] + (T{1} - beta1) * g;
      const T v = beta2 * moment2[i] + (T{1} - beta2) * g * g;
      moment1_out[i] = m;
      moment2_out[i] = v;
      param_out[i] = param[i] - rate * (m / (std::sqrt(v) + epsilon));
    }
  }
};

template <class T>
std::unique_ptr<Prepared> prepare_adam(PrepareContext& context) {
  if (context.has_input("Beta1Tensor") || context.has_input("Beta2Tensor")) return nullptr;
  const auto attrs = context.attrs<AdamAttrs>();
  const Shape shape = context.in("Param").shape;
  const auto n = static_cast<size_t>(shape.numel());
  const int param = context.input("Param");
  const int grad = like_param<T>(context, "Grad");
  const int moment1 = like_param<T>(context, "Moment1");
  const int moment2 = like_param<T>(context, "Moment2");
  const int rate = scalar<T>(context, "LearningRate");
  const int power1 = scalar<T>(context, "Beta1Pow");
  const int power2 = scalar<T>(context, "Beta2Pow");
  const int out = context.set_output("ParamOut", shape, dtype_of<T>());
  const int moment1_out = context.set_output("Moment1Out", shape, dtype_of<T>());
  const int moment2_out = context.set_output("Moment2Out", shape, dtype_of<T>());
  const int power1_out =
      context.set_output("Beta1PowOut", context.in("Beta1Pow").shape, dtype_of<T>());
  const int power2_out =
      context.set_output("Beta2PowOut", context.in("Beta2Pow").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T beta1 = static_cast<T>(attrs.beta1);
    const T beta2 = static_cast<T>(attrs.beta2);
    const T b1 = *c.in<T>(power1);
    const T b2 = *c.in<T>(power2);
    const T lr = *c.in<T>(rate) * std::sqrt(T{1} - b2) / (T{1} - b1);
    const AdamStep<T> step = {c.in<T>(param),       c.in<T>(grad), c.in<T>(moment1),
                              c.in<T>(moment2),     c.out<T>(out), c.out<T>(moment1_out),
                              c.out<T>(moment2_out)};
    step.run(n, beta1, beta2, static_cast<T>(attrs.epsilon), lr);
    if (power1_out >= 0) *c.out<T>(power1_out) = b1 * beta1;
    if (power2_out >= 0) *c.out<T>(power2_out) = b2 * beta2;
  });
}

}  // namespace

void register_optimizer(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add("sgd", prepare_sgd<T>);
    add("momentum", prepare_momentum<T>);
    add("adam", prepare_adam<T>);
  });
}

}  // namespace fleet::fluid::cpu
