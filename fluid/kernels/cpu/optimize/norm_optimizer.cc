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
T norm_of(const KernelContext& c, const T* x, int64_t rows, int64_t width,
          const int64_t* numbers = nullptr) {
  return static_cast<T>(std::sqrt(squared_sum(c.tiles(), x, rows, width, numbers)));
}

template <class T>
T norm_of(Gradient<T>& gradient, const KernelContext& c) {
  if (!gradient.sparse()) return norm_of(c, gradient.dense(c), gradient.height(), gradient.width());
  const MergedRows<T>& rows = gradient.merged(c);
  return norm_of(c, rows.values(), static_cast<int64_t>(rows.count()), gradient.width(),
                 rows.rows().data());
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

// Advances moments and powers.
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

  // Of the step that begins; powers have not advanced yet.
  LambDirection<T> formula(const KernelContext& c) const {
    const bool corrects = !attrs_.paddle_form;
    return {.scale1 = corrects ? T{1} / (T{1} - *c.in<T>(power1_)) : T{1},
            .scale2 = corrects ? T{1} / (T{1} - *c.in<T>(power2_)) : T{1},
            .epsilon = static_cast<T>(attrs_.epsilon),
            .decay = static_cast<T>(attrs_.weight_decay)};
  }

  void run(const KernelContext& c, const LambDirection<T>& formula, T* direction) {
    gradient_.each_run(c, [&](size_t first, size_t n, auto grad) {
      advance(c, first, n, grad);
      direct(c, formula, first, n, direction + first);
    });
    advance_powers(c);
  }

  // Without the direction: its norm and the parameter's.
  struct Norms {
    T param;
    T direction;
  };
  Norms run(const KernelContext& c, const LambDirection<T>& formula) {
    if (gradient_.sparse()) {
      gradient_.each_run(c, [&](size_t first, size_t n, auto grad) { advance(c, first, n, grad); });
    }
    const int64_t rows = height();
    auto* sums =
        reinterpret_cast<double*>(c.scratch().get(2 * static_cast<size_t>(rows) * sizeof(double)));
    c.tiles().split(rows, 8 * width(), [&](int64_t begin, int64_t end) {
      const int64_t together = std::max<int64_t>(1, kTogether / std::max<int64_t>(1, width()));
      T* direction = tile_scratch<T>(together * width());
      for (int64_t row = begin; row < end; row += together) {
        sum_squares(c, formula, row, std::min(end, row + together), direction, sums);
      }
    });
    advance_powers(c);
    return {.param = static_cast<T>(std::sqrt(sum_rows(sums, rows))),
            .direction = static_cast<T>(std::sqrt(sum_rows(sums + rows, rows)))};
  }

  int64_t height() const { return gradient_.height(); }
  int64_t width() const { return gradient_.width(); }

  // Of elements that have advanced.
  void direct(const KernelContext& c, const LambDirection<T>& formula, size_t first, size_t n,
              T* direction) const {
    const T* p = c.in<T>(param_) + first;
    const T* m = c.out<T>(moment1_.out) + first;
    const T* v = c.out<T>(moment2_.out) + first;
    FLEET_EACH_ALONE
    for (size_t i = 0; i < n; ++i) direction[i] = formula(m[i], v[i], p[i]);
  }

 private:
  static constexpr int64_t kTogether = 1024;  // elements whose direction is in the cache

  template <class Grad>
  void advance(const KernelContext& c, size_t first, size_t n, const Grad& grad) const {
    const T beta1 = static_cast<T>(attrs_.beta1);
    const T beta2 = static_cast<T>(attrs_.beta2);
    const StateArrays<T> m(c, moment1_, first);
    const StateArrays<T> v(c, moment2_, first);
    FLEET_EACH_ALONE
    for (size_t i = 0; i < n; ++i) {
      const T g = grad(i);
      m.to[i] = beta1 * m.from[i] + (T{1} - beta1) * g;
      v.to[i] = beta2 * v.from[i] + (T{1} - beta2) * g * g;
    }
  }

  // Rows of a dense gradient advance, too.
  void sum_squares(const KernelContext& c, const LambDirection<T>& formula, int64_t begin,
                   int64_t end, T* direction, double* sums) const {
    const int64_t length = width();
    const auto first = static_cast<size_t>(begin * length);
    const auto n = static_cast<size_t>((end - begin) * length);
    if (!gradient_.sparse()) advance(c, first, n, Elements<T>{gradient_.dense(c) + first});
    direct(c, formula, first, n, direction);
    const T* p = c.in<T>(param_) + first;
    for (int64_t row = begin; row < end; ++row, p += length, direction += length) {
      sums[row] = squared_row_sum(p, length);
      sums[height() + row] = squared_row_sum(direction, length);
    }
  }

  void advance_powers(const KernelContext& c) const {
    const T b1 = *c.in<T>(power1_);
    const T b2 = *c.in<T>(power2_);
    if (next1_ >= 0) *c.out<T>(next1_) = b1 * static_cast<T>(attrs_.beta1);
    if (next2_ >= 0) *c.out<T>(next2_) = b2 * static_cast<T>(attrs_.beta2);
  }

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

// param -= lr * direction, which direct(first, n, to) gives to a loop of `n` elements.
template <class T, class Direct>
void step_along(const KernelContext& c, const StateArrays<T>& p, T lr, int64_t numel,
                const Direct& direct) {
  constexpr int64_t kTogether = 1024;
  c.tiles().split(numel, 4, [&](int64_t begin, int64_t end) {
    T u[kTogether];
    T sum{};
    for (int64_t at = begin; at < end; at += kTogether) {
      const int64_t n = std::min(kTogether, end - at);
      direct(at, n, static_cast<T*>(u));
      const T* from = p.from + at;
      T* to = p.to + at;
      FLEET_EACH_ALONE_ADDING(sum)
      for (int64_t i = 0; i < n; ++i) {
        to[i] = from[i] - lr * u[i];
        sum += to[i];
      }
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
    const LambDirection<T> formula = moments.formula(c);
    const auto norms = moments.run(c, formula);
    step_along(c, StateArrays<T>(c, param), lamb_rate(*c.in<T>(rate), norms.param, norms.direction),
               moments.height() * moments.width(), [&](int64_t first, int64_t n, T* u) {
                 moments.direct(c, formula, static_cast<size_t>(first), static_cast<size_t>(n), u);
               });
  });
}

// The two halves of lamb, for parameters that are cut: sums over rows of the whole in between.
template <class T>
std::unique_ptr<Prepared> prepare_lamb_direction(PrepareContext& context) {
  LambMoments<T> moments(context);
  const int out = context.set_output("Direction", context.in("Param").shape, dtype_of<T>());
  return make_prepared(
      [=](const KernelContext& c) mutable { moments.run(c, moments.formula(c), c.out<T>(out)); });
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
    const T lr = lamb_rate(*c.in<T>(rate), norm_of_rows<T>(c, p_rows), norm_of_rows<T>(c, u_rows));
    const T* u = c.in<T>(direction);
    step_along(c, StateArrays<T>(c, param), lr, numel,
               [=](int64_t first, int64_t n, T* to) { std::copy_n(u + first, n, to); });
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
