// Update ops whose step depends on norms of the whole parameter and gradient. Sums of squares go
// row by row (row_sums.h).
#include <cmath>

#include "base/philox.h"
#include "fluid/kernels/cpu/math/row_sums.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/optimize/dpsgd_noise.h"
#include "fluid/ops/optimize/optimize.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
T norm_of(const KernelContext& c, const T* x, int64_t rows, int64_t width) {
  return static_cast<T>(std::sqrt(squared_sum(c.tiles(), x, rows, width)));
}

template <class T>
T norm_of(Gradient<T>& gradient, const KernelContext& c) {
  if (!gradient.sparse()) return norm_of(c, gradient.dense(c), gradient.height(), gradient.width());
  const MergedRows<T>& rows = gradient.merged(c);
  return norm_of(c, rows.values(), static_cast<int64_t>(rows.count()), gradient.width());
}

// From the sums over rows of the whole that a slice is a part of.
template <class T>
T norm_of_rows(const KernelContext& c, int rows) {
  const Tensor& sums = c.input(rows);
  return static_cast<T>(std::sqrt(sum_rows(sums.data<double>(), sums.numel())));
}

template <class T>
std::unique_ptr<Prepared> prepare_lars_momentum(PrepareContext& context) {
  const auto attrs = context.attrs<LarsMomentumAttrs>();
  Update<T> update(context);
  const StatePositions velocity = state<T>(context, "Velocity", "VelocityOut");
  const int p_rows = context.input("ParamSquaredRowSums");
  const int g_rows = context.input("GradSquaredRowSums");
  const T mu = static_cast<T>(attrs.mu);
  const T coeff = static_cast<T>(attrs.lars_coeff);
  const T decay = static_cast<T>(attrs.lars_weight_decay);
  return make_prepared([=](const KernelContext& c) mutable {
    const T p_norm = p_rows >= 0 ? norm_of_rows<T>(c, p_rows)
                                 : norm_of(c, c.in<T>(update.param.in), update.gradient.height(),
                                           update.gradient.width());
    const T g_norm = g_rows >= 0 ? norm_of_rows<T>(c, g_rows) : norm_of(update.gradient, c);
    T lr = update.learning_rate(c);
    if (p_norm > T{} && g_norm > T{}) lr = lr * coeff * p_norm / (g_norm + decay * p_norm);
    update.gradient.each_run(c, [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      const StateArrays<T> v(c, velocity, first);
      T sum{};
      FLEET_EACH_ALONE_ADDING(sum)
      for (size_t i = 0; i < n; ++i) {
        v.to[i] = mu * v.from[i] + lr * (grad(i) + decay * p.from[i]);
        p.to[i] = p.from[i] - v.to[i];
        sum += p.to[i];
      }
      c.add_written(sum);
    });
  });
}

// The direction of lamb, from the moments and the parameter.
template <class T>
struct LambDirection {
  T scale1;  // on the first moment
  T scale2;  // on the second
  T epsilon;
  T decay;

  T operator()(T moment1, T moment2, T param) const {
    return scale1 * moment1 / (std::sqrt(scale2 * moment2) + epsilon) + decay * param;
  }
};

// Advances moments and powers, and gives the direction.
template <class T>
class LambMoments {
 public:
  explicit LambMoments(PrepareContext& context)
      : attrs_(context.attrs<LambAttrs>()),
        gradient_(context),
        power1_(scalar_input<T>(context, "Beta1Pow")),
        power2_(scalar_input<T>(context, "Beta2Pow")),
        param_(context.input("Param")),
        moment1_(state<T>(context, "Moment1", "Moment1Out")),
        moment2_(state<T>(context, "Moment2", "Moment2Out")),
        next1_(context.set_output("Beta1PowOut", context.in("Beta1Pow").shape, dtype_of<T>())),
        next2_(context.set_output("Beta2PowOut", context.in("Beta2Pow").shape, dtype_of<T>())) {}

  void run(const KernelContext& c, T* direction) {
    const T beta1 = static_cast<T>(attrs_.beta1);
    const T beta2 = static_cast<T>(attrs_.beta2);
    const bool corrects = !attrs_.paddle_form;
    const T b1 = *c.in<T>(power1_);
    const T b2 = *c.in<T>(power2_);
    const LambDirection<T> formula = {
        corrects ? T{1} / (T{1} - b1) : T{1}, corrects ? T{1} / (T{1} - b2) : T{1},
        static_cast<T>(attrs_.epsilon), static_cast<T>(attrs_.weight_decay)};
    gradient_.each_run(c, [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> m(c, moment1_, first);
      const StateArrays<T> v(c, moment2_, first);
      FLEET_EACH_ALONE
      for (size_t i = 0; i < n; ++i) {
        const T g = grad(i);
        m.to[i] = beta1 * m.from[i] + (T{1} - beta1) * g;
        v.to[i] = beta2 * v.from[i] + (T{1} - beta2) * g * g;
      }
    });
    const T* p = c.in<T>(param_);
    const T* m = c.out<T>(moment1_.out);
    const T* v = c.out<T>(moment2_.out);
    c.tiles().split(gradient_.height() * gradient_.width(), 4, [=](int64_t begin, int64_t end) {
      FLEET_EACH_ALONE
      for (int64_t i = begin; i < end; ++i) direction[i] = formula(m[i], v[i], p[i]);
    });
    if (next1_ >= 0) *c.out<T>(next1_) = b1 * beta1;
    if (next2_ >= 0) *c.out<T>(next2_) = b2 * beta2;
  }

  int64_t height() const { return gradient_.height(); }
  int64_t width() const { return gradient_.width(); }

 private:
  LambAttrs attrs_;
  Gradient<T> gradient_;
  int power1_;
  int power2_;
  int param_;
  StatePositions moment1_;
  StatePositions moment2_;
  int next1_;
  int next2_;
};

template <class T>
T lamb_rate(T rate, T p_norm, T u_norm) {
  const T ratio = p_norm > T{} && u_norm > T{} ? p_norm / u_norm : T{1};
  return rate * ratio;
}

// param -= lr * direction.
template <class T>
void step_along(const KernelContext& c, const StateArrays<T>& p, T lr, const T* direction,
                int64_t numel) {
  c.tiles().split(numel, 1, [&](int64_t begin, int64_t end) {
    T sum{};
    FLEET_EACH_ALONE_ADDING(sum)
    for (int64_t i = begin; i < end; ++i) {
      p.to[i] = p.from[i] - lr * direction[i];
      sum += p.to[i];
    }
    c.add_written(sum);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_lamb(PrepareContext& context) {
  LambMoments<T> moments(context);
  const int rate = scalar_input<T>(context, "LearningRate");
  const StatePositions param = state<T>(context, "Param", "ParamOut");
  return make_prepared([=](const KernelContext& c) mutable {
    const int64_t numel = moments.height() * moments.width();
    T* u = reinterpret_cast<T*>(c.scratch().get(static_cast<size_t>(numel) * sizeof(T)));
    moments.run(c, u);
    const StateArrays<T> p(c, param);
    const T lr = lamb_rate(*c.in<T>(rate), norm_of(c, p.from, moments.height(), moments.width()),
                           norm_of(c, static_cast<const T*>(u), moments.height(), moments.width()));
    step_along(c, p, lr, u, numel);
  });
}

// The two halves of lamb, for parameters that are cut: sums over rows of the whole in between.
template <class T>
std::unique_ptr<Prepared> prepare_lamb_direction(PrepareContext& context) {
  LambMoments<T> moments(context);
  const int out = context.set_output("Direction", context.in("Param").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) mutable { moments.run(c, c.out<T>(out)); });
}

template <class T>
std::unique_ptr<Prepared> prepare_lamb_apply(PrepareContext& context) {
  const int rate = scalar_input<T>(context, "LearningRate");
  const StatePositions param = state<T>(context, "Param", "ParamOut");
  const int direction = context.input("Direction");
  const int p_rows = context.input("ParamSquaredRowSums");
  const int u_rows = context.input("DirectionSquaredRowSums");
  const int64_t numel = context.in("Param").shape.numel();
  return make_prepared([=](const KernelContext& c) {
    const StateArrays<T> p(c, param);
    const T* u = c.in<T>(direction);
    const T lr = lamb_rate(*c.in<T>(rate), norm_of_rows<T>(c, p_rows), norm_of_rows<T>(c, u_rows));
    step_along(c, p, lr, u, numel);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_dpsgd(PrepareContext& context) {
  const auto attrs = context.attrs<DpsgdAttrs>();
  Update<T> update(context);
  const DpsgdNoise noise = dpsgd_noise_of(context);
  return make_prepared([=](const KernelContext& c) mutable {
    const T lr = update.learning_rate(c);
    const T clip = static_cast<T>(attrs.clip);
    const T norm = norm_of(update.gradient, c);
    const T factor = norm > clip ? clip / norm : T{1};
    const uint64_t word = noise.word(c);
    update.gradient.each_run(c, [&](size_t first, size_t n, auto grad) {
      const StateArrays<T> p(c, update.param, first);
      double sum = 0;
      for (size_t i = 0; i < n; ++i) {
        const T drawn =
            static_cast<T>(noise.factor * normal_double(noise.key, noise.first + first + i, word));
        p.to[i] = p.from[i] - lr * (grad(i) * factor + drawn);
        sum += p.to[i];
      }
      c.add_written(sum);
    });
  });
}

}  // namespace

void register_norm_optimizer(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    add_update<T>(table, "lars_momentum", prepare_lars_momentum<T>);
    add_update<T>(table, "lamb", prepare_lamb<T>);
    add_update<T>(table, "lamb_direction", prepare_lamb_direction<T>);
    add_update<T>(table, "lamb_apply", prepare_lamb_apply<T>);
    add_update<T>(table, "dpsgd", prepare_dpsgd<T>);
  });
}

}  // namespace fleet::fluid::cpu
