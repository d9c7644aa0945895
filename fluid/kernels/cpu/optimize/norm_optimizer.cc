// Update ops whose step depends on norms of the whole parameter and gradient. Sums of squares go
// row by row (row_sums.h).
#include <cmath>

#include "base/philox.h"
#include "fluid/kernels/cpu/math/row_sums.h"
#include "fluid/kernels/cpu/optimize/each_adding_impl.h"
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

// direction[i] = element(i), which touches element i of its arrays only.
template <class T, class Element>
void store_each(T* direction, size_t n, Element element) {
  in_widest_vectors([=] {
    FLEET_EACH_ALONE
    for (size_t i = 0; i < n; ++i) direction[i] = element(i);
  });
}

// Elements of a parameter whose direction is kept from the first pass to the second. A larger one
// takes as long to go to memory and back as to compute again.
constexpr int64_t kKept = int64_t{1} << 22;

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
      store_each(direction + first, n, advancing(c, formula, first, grad));
    });
    advance_powers(c);
  }

  struct Norms {
    T param;
    T direction;
  };
  // Besides, gives norms, for which `sums` has room for two numbers a row. A direction that is null
  // is not kept.
  Norms run(const KernelContext& c, const LambDirection<T>& formula, double* sums, T* direction) {
    if (gradient_.sparse()) {
      const auto none = [](T, T, T) { return T{}; };
      gradient_.each_run(c, [&](size_t first, size_t n, auto grad) {
        each_adding<T>(n, advancing(c, none, first, grad));
      });
      sum_squares(c, sums, direction, [&](size_t first) { return standing(c, formula, first); });
    } else {
      const T* grad = gradient_.dense(c);
      sum_squares(c, sums, direction, [&](size_t first) {
        return advancing(c, formula, first, Elements<T>{grad + first});
      });
    }
    advance_powers(c);
    const int64_t rows = height();
    return {.param = static_cast<T>(std::sqrt(sum_rows(sums, rows))),
            .direction = static_cast<T>(std::sqrt(sum_rows(sums + rows, rows)))};
  }

  int64_t height() const { return gradient_.height(); }
  int64_t width() const { return gradient_.width(); }

  // The direction of element i of a run whose elements have advanced.
  auto standing(const KernelContext& c, const LambDirection<T>& formula, size_t first = 0) const {
    const T* p = c.in<T>(param_) + first;
    const T* m = c.out<T>(moment1_.out) + first;
    const T* v = c.out<T>(moment2_.out) + first;
    return [=](size_t i) { return formula(m[i], v[i], p[i]); };
  }

 private:
  static constexpr int64_t kTogether = 1024;  // elements whose direction is in the cache

  // The same, of an element that advances just then.
  template <class Formula, class Grad>
  auto advancing(const KernelContext& c, const Formula& formula, size_t first,
                 const Grad& grad) const {
    const T beta1 = static_cast<T>(attrs_.beta1);
    const T beta2 = static_cast<T>(attrs_.beta2);
    const T* p = c.in<T>(param_) + first;
    const StateArrays<T> m(c, moment1_, first);
    const StateArrays<T> v(c, moment2_, first);
    return [=](size_t i) {
      const T g = grad(i);
      const T moment1 = beta1 * m.from[i] + (T{1} - beta1) * g;
      const T moment2 = beta2 * v.from[i] + (T{1} - beta2) * g * g;
      const T direction = formula(moment1, moment2, p[i]);
      m.to[i] = moment1;
      v.to[i] = moment2;
      return direction;
    };
  }

  // Directions and sums of squares of rows, in tiles. element_of(first) gives what a run stores.
  template <class ElementOf>
  void sum_squares(const KernelContext& c, double* sums, T* kept,
                   const ElementOf& element_of) const {
    const int64_t length = width();
    const int64_t together = std::max<int64_t>(1, kTogether / std::max<int64_t>(1, length));
    c.tiles().split(height(), 2 * length, [&](int64_t begin, int64_t end) {
      T* const passing = kept == nullptr ? tile_scratch<T>(together * length) : nullptr;
      for (int64_t row = begin; row < end; row += together) {
        const int64_t first = row * length;
        const int64_t rows = std::min(together, end - row);
        const T* p = c.in<T>(param_) + first;
        T* direction = kept == nullptr ? passing : kept + first;
        store_each(direction, static_cast<size_t>(rows * length),
                   element_of(static_cast<size_t>(first)));
        for (int64_t i = row; i < row + rows; ++i, p += length, direction += length) {
          sums[i] = squared_row_sum(p, length);
          sums[height() + i] = squared_row_sum(direction, length);
        }
      }
    });
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

// param -= lr * direction(i) for each element i.
template <class T, class Direction>
void step_along(const KernelContext& c, const StateArrays<T>& p, T lr, int64_t numel,
                const Direction& direction) {
  c.tiles().split(numel, 1, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin);
    c.add_written(each_adding<T>(static_cast<size_t>(end - begin), [=](size_t i) {
      const T moved = p.from[first + i] - lr * direction(first + i);
      p.to[first + i] = moved;
      return moved;
    }));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_lamb(PrepareContext& context) {
  LambMoments<T> moments(context);
  const int rate = scalar_input<T>(context, "LearningRate");
  const StatePositions param = state<T>(context, "Param", "ParamOut");
  return make_prepared([=](const KernelContext& c) mutable {
    const int64_t numel = moments.height() * moments.width();
    const LambDirection<T> formula = moments.formula(c);
    const size_t sums_bytes = 2 * static_cast<size_t>(moments.height()) * sizeof(double);
    const size_t kept_bytes = numel <= kKept ? static_cast<size_t>(numel) * sizeof(T) : 0;
    std::byte* scratch = c.scratch().get(sums_bytes + kept_bytes);
    auto* sums = reinterpret_cast<double*>(scratch);
    T* kept = kept_bytes > 0 ? reinterpret_cast<T*>(scratch + sums_bytes) : nullptr;
    const auto norms = moments.run(c, formula, sums, kept);
    const T lr = lamb_rate(*c.in<T>(rate), norms.param, norms.direction);
    const StateArrays<T> p(c, param);
    if (kept != nullptr) {
      step_along(c, p, lr, numel, [=](size_t i) { return kept[i]; });
    } else {
      step_along(c, p, lr, numel, moments.standing(c, formula));
    }
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
    step_along(c, StateArrays<T>(c, param), lr, numel, [=](size_t i) { return u[i]; });
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
