// Update ops whose element i depends on element i of every state alone, by the same operations at
// every position: a slice of a parameter moves by the bits of the whole. One pass over memory.
#include <cmath>
#include <cstring>

#include "fluid/kernels/cpu/optimize/each_adding_impl.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/ops/optimize/optimize.h"

namespace fleet::fluid::cpu {
namespace {

// Rows that an update leaves alone keep their values where input and output are apart.
template <class T>
void keep_rest(const KernelContext& c, StatePositions at, size_t n) {
  const StateArrays<T> arrays(c, at);
  if (arrays.from != arrays.to) copy_in_tiles(c.tiles(), arrays.from, arrays.to, n * sizeof(T));
}

template <class T>
std::unique_ptr<Prepared> prepare_sgd(PrepareContext& context) {
  Update<T> update(context);
  return make_prepared([=](const KernelContext& c) mutable {
    const T lr = update.learning_rate(c);
    const auto step = [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      c.add_written(each_adding<T>(n, [=](size_t i) {
        p.to[i] = p.from[i] - lr * grad(i);
        return p.to[i];
      }));
    };
    if (update.gradient.sparse()) keep_rest<T>(c, update.param, update.gradient.numel());
    update.gradient.each_run(c, step, true, {update.param});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_momentum(PrepareContext& context) {
  const auto attrs = context.attrs<MomentumAttrs>();
  Update<T> update(context);
  const StatePositions velocity = state<T>(context, "Velocity", "VelocityOut");
  const T mu = static_cast<T>(attrs.mu);
  const bool nesterov = attrs.use_nesterov;
  return make_prepared([=](const KernelContext& c) mutable {
    const T lr = update.learning_rate(c);
    update.gradient.each_run(c, [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      const StateArrays<T> v(c, velocity, first);
      if (nesterov) {
        return c.add_written(each_adding<T>(n, [=](size_t i) {
          const T g = grad(i);
          v.to[i] = mu * v.from[i] + g;
          p.to[i] = p.from[i] - lr * (g + mu * v.to[i]);
          return p.to[i];
        }));
      }
      c.add_written(each_adding<T>(n, [=](size_t i) {
        v.to[i] = mu * v.from[i] + grad(i);
        p.to[i] = p.from[i] - lr * v.to[i];
        return p.to[i];
      }));
    });
  });
}

// adagrad: keep = add = 1; decayed_adagrad: keep = decay, add = 1 - decay.
template <class T>
std::unique_ptr<Prepared> prepare_square_mean(PrepareContext& context, T keep, T add, T epsilon) {
  Update<T> update(context);
  const StatePositions moment = state<T>(context, "Moment", "MomentOut");
  const bool stays = keep == T{1};  // without a gradient nothing moves
  return make_prepared([=](const KernelContext& c) mutable {
    const T lr = update.learning_rate(c);
    const auto step = [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      const StateArrays<T> m(c, moment, first);
      c.add_written(each_adding<T>(n, [=](size_t i) {
        const T g = grad(i);
        m.to[i] = keep * m.from[i] + add * g * g;
        p.to[i] = p.from[i] - lr * g / (std::sqrt(m.to[i]) + epsilon);
        return p.to[i];
      }));
    };
    if (update.gradient.sparse() && stays) {
      keep_rest<T>(c, update.param, update.gradient.numel());
      keep_rest<T>(c, moment, update.gradient.numel());
    }
    update.gradient.each_run(c, step, stays, {update.param, moment});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_adagrad(PrepareContext& context) {
  const auto attrs = context.attrs<AdagradAttrs>();
  return prepare_square_mean<T>(context, T{1}, T{1}, static_cast<T>(attrs.epsilon));
}

template <class T>
std::unique_ptr<Prepared> prepare_decayed_adagrad(PrepareContext& context) {
  const auto attrs = context.attrs<DecayedAdagradAttrs>();
  const T decay = static_cast<T>(attrs.decay);
  return prepare_square_mean<T>(context, decay, T{1} - decay, static_cast<T>(attrs.epsilon));
}

template <class T>
std::unique_ptr<Prepared> prepare_adadelta(PrepareContext& context) {
  const auto attrs = context.attrs<AdadeltaAttrs>();
  Gradient<T> gradient(context);
  const StatePositions param = state<T>(context, "Param", "ParamOut");
  const StatePositions squares = state<T>(context, "AvgSquaredGrad", "AvgSquaredGradOut");
  const StatePositions updates = state<T>(context, "AvgSquaredUpdate", "AvgSquaredUpdateOut");
  const T rho = static_cast<T>(attrs.rho);
  const T epsilon = static_cast<T>(attrs.epsilon);
  const bool with_new = attrs.paddle_form;
  return make_prepared([=](const KernelContext& c) mutable {
    gradient.each_run(c, [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, param, first);
      const StateArrays<T> s(c, squares, first);
      const StateArrays<T> u(c, updates, first);
      c.add_written(each_adding<T>(n, [=](size_t i) {
        const T g = grad(i);
        const T square = rho * s.from[i] + (T{1} - rho) * g * g;
        const T old_mean = u.from[i];
        const T step = std::sqrt((old_mean + epsilon) / (square + epsilon)) * g;
        const T mean = rho * old_mean + (T{1} - rho) * step * step;
        const T with_mean = std::sqrt((mean + epsilon) / (square + epsilon)) * g;
        s.to[i] = square;
        u.to[i] = mean;
        p.to[i] = p.from[i] - (with_new ? with_mean : step);
        return p.to[i];
      }));
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_adam(PrepareContext& context) {
  const auto attrs = context.attrs<AdamAttrs>();
  Update<T> update(context);
  const int power1 = scalar_input<T>(context, "Beta1Pow");
  const int power2 = scalar_input<T>(context, "Beta2Pow");
  const StatePositions moment1 = state<T>(context, "Moment1", "Moment1Out");
  const StatePositions moment2 = state<T>(context, "Moment2", "Moment2Out");
  const int next1 = context.set_output("Beta1PowOut", context.in("Beta1Pow").shape, dtype_of<T>());
  const int next2 = context.set_output("Beta2PowOut", context.in("Beta2Pow").shape, dtype_of<T>());
  const int given1 = optional_scalar_input<float>(context, "Beta1Tensor");
  const int given2 = optional_scalar_input<float>(context, "Beta2Tensor");
  const T epsilon = static_cast<T>(attrs.epsilon);
  const bool lazy = attrs.lazy_mode;
  const bool ahead = attrs.paddle_form && update.gradient.sparse();
  return make_prepared([=](const KernelContext& c) mutable {
    const T beta1 = static_cast<T>(given1 >= 0 ? *c.in<float>(given1) : attrs.beta1);
    const T beta2 = static_cast<T>(given2 >= 0 ? *c.in<float>(given2) : attrs.beta2);
    const T b1 = *c.in<T>(power1);
    const T b2 = *c.in<T>(power2);
    const T used1 = ahead ? b1 * beta1 : b1;
    const T used2 = ahead ? b2 * beta2 : b2;
    const T lr = update.learning_rate(c) * std::sqrt(T{1} - used2) / (T{1} - used1);
    const auto step = [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      const StateArrays<T> m(c, moment1, first);
      const StateArrays<T> v(c, moment2, first);
      c.add_written(each_adding<T>(n, [=](size_t i) {
        const T g = grad(i);
        m.to[i] = beta1 * m.from[i] + (T{1} - beta1) * g;
        v.to[i] = beta2 * v.from[i] + (T{1} - beta2) * g * g;
        p.to[i] = p.from[i] - lr * (m.to[i] / (std::sqrt(v.to[i]) + epsilon));
        return p.to[i];
      }));
    };
    if (update.gradient.sparse() && lazy) {
      for (const StatePositions& at : {update.param, moment1, moment2}) {
        keep_rest<T>(c, at, update.gradient.numel());
      }
    }
    update.gradient.each_run(c, step, lazy, {update.param, moment1, moment2});
    if (next1 >= 0) *c.out<T>(next1) = b1 * beta1;
    if (next2 >= 0) *c.out<T>(next2) = b2 * beta2;
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_adamax(PrepareContext& context) {
  const auto attrs = context.attrs<AdamaxAttrs>();
  Update<T> update(context);
  const int power = scalar_input<T>(context, "Beta1Pow");
  const StatePositions moment = state<T>(context, "Moment", "MomentOut");
  const StatePositions norm = state<T>(context, "InfNorm", "InfNormOut");
  const T beta1 = static_cast<T>(attrs.beta1);
  const T beta2 = static_cast<T>(attrs.beta2);
  const T epsilon = static_cast<T>(attrs.epsilon);
  return make_prepared([=](const KernelContext& c) mutable {
    const T lr = update.learning_rate(c) / (T{1} - *c.in<T>(power));
    update.gradient.each_run(c, [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      const StateArrays<T> m(c, moment, first);
      const StateArrays<T> u(c, norm, first);
      c.add_written(each_adding<T>(n, [=](size_t i) {
        const T g = grad(i);
        const T size = std::abs(g);
        const T decayed = beta2 * u.from[i] + epsilon;
        m.to[i] = beta1 * m.from[i] + (T{1} - beta1) * g;
        u.to[i] = size > decayed ? size : decayed;
        p.to[i] = p.from[i] - lr * (m.to[i] / u.to[i]);
        return p.to[i];
      }));
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_rmsprop(PrepareContext& context) {
  const auto attrs = context.attrs<RmspropAttrs>();
  Update<T> update(context);
  const StatePositions square = state<T>(context, "MeanSquare", "MeanSquareOut");
  const StatePositions mean = state<T>(context, "MeanGrad", "MeanGradOut");
  const StatePositions moment = state<T>(context, "Moment", "MomentOut");
  const T rho = static_cast<T>(attrs.decay);
  const T epsilon = static_cast<T>(attrs.epsilon);
  const T mu = static_cast<T>(attrs.momentum);
  const bool centered = attrs.centered;
  return make_prepared([=](const KernelContext& c) mutable {
    const T lr = update.learning_rate(c);
    update.gradient.each_run(c, [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      const StateArrays<T> s(c, square, first);
      const StateArrays<T> q(c, mean, first);
      const StateArrays<T> w(c, moment, first);
      if (centered) {
        return c.add_written(each_adding<T>(n, [=](size_t i) {
          const T g = grad(i);
          const T average = rho * q.from[i] + (T{1} - rho) * g;
          s.to[i] = rho * s.from[i] + (T{1} - rho) * g * g;
          q.to[i] = average;
          w.to[i] = mu * w.from[i] + lr * g / std::sqrt(s.to[i] - average * average + epsilon);
          p.to[i] = p.from[i] - w.to[i];
          return p.to[i];
        }));
      }
      if (q.to != q.from) std::memcpy(q.to, q.from, n * sizeof(T));
      c.add_written(each_adding<T>(n, [=](size_t i) {
        const T g = grad(i);
        s.to[i] = rho * s.from[i] + (T{1} - rho) * g * g;
        w.to[i] = mu * w.from[i] + lr * g / std::sqrt(s.to[i] + epsilon);
        p.to[i] = p.from[i] - w.to[i];
        return p.to[i];
      }));
    });
  });
}

// `root(n)` is n^-lr_power.
template <class T, class Root>
std::unique_ptr<Prepared> prepare_ftrl_with(PrepareContext& context, Root root) {
  const auto attrs = context.attrs<FtrlAttrs>();
  Update<T> update(context);
  const StatePositions squares = state<T>(context, "SquaredAccumulator", "SquaredAccumOut");
  const StatePositions linear = state<T>(context, "LinearAccumulator", "LinearAccumOut");
  const T l1 = static_cast<T>(attrs.l1) + static_cast<T>(1e-10);
  const T l2 = static_cast<T>(attrs.l2) + static_cast<T>(1e-10);
  const T minus_l1 = -l1;
  return make_prepared([=](const KernelContext& c) mutable {
    // Quotients are what the loop waits for.
    const T per_rate = T{1} / update.learning_rate(c);
    update.gradient.each_run(c, [=, &c](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      const StateArrays<T> s(c, squares, first);
      const StateArrays<T> l(c, linear, first);
      c.add_written(each_adding<T>(n, [=](size_t i) {
        const T g = grad(i);
        const T square = s.from[i] + g * g;
        const T new_root = root(square);
        const T sum = l.from[i] + (g - (new_root - root(s.from[i])) * per_rate * p.from[i]);
        // Choices between numbers that are there: of choices between sums or quotients compilers
        // make branches.
        const T side = sum > T{} ? l1 : minus_l1;
        const T pull = (std::abs(sum) > l1 ? side : sum) - sum;
        s.to[i] = square;
        l.to[i] = sum;
        p.to[i] = pull / (new_root * per_rate + T{2} * l2);
        return p.to[i];
      }));
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_ftrl(PrepareContext& context) {
  const float power = context.attrs<FtrlAttrs>().lr_power;
  if (power == -0.5f) return prepare_ftrl_with<T>(context, [](T n) { return std::sqrt(n); });
  if (power == -1.0f) return prepare_ftrl_with<T>(context, [](T n) { return n; });
  const T exponent = -static_cast<T>(power);
  return prepare_ftrl_with<T>(context,
                              [exponent](T n) { return static_cast<T>(std::pow(n, exponent)); });
}

}  // namespace

void register_optimizer(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    add_update<T>(table, "sgd", prepare_sgd<T>);
    add_update<T>(table, "momentum", prepare_momentum<T>);
    add_update<T>(table, "adagrad", prepare_adagrad<T>);
    add_update<T>(table, "decayed_adagrad", prepare_decayed_adagrad<T>);
    add_update<T>(table, "adadelta", prepare_adadelta<T>);
    add_update<T>(table, "adam", prepare_adam<T>);
    add_update<T>(table, "adamax", prepare_adamax<T>);
    add_update<T>(table, "rmsprop", prepare_rmsprop<T>);
    add_update<T>(table, "ftrl", prepare_ftrl<T>);
  });
  register_average(table);
  register_norm_optimizer(table);
  register_sparse_clip(table);
  register_dgc(table);
  register_growing_table_update(table);
}

}  // namespace fleet::fluid::cpu
