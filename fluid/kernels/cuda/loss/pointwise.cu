#include "fluid/kernels/cuda/loss/pointwise_loops.h"
#include "fluid/kernels/cuda/math/reduce_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
struct SigmoidLoop {
  T ignore;
  const T* divisor;
  const T* x;
  const T* label;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t i) const {
    const T z = label[i];
    if (trunc(z) == ignore) {
      out[i] = T{};
      return;
    }
    const T by = divisor != nullptr ? *divisor : T{1};
    const T softplus = (x[i] < T{} ? T{} : x[i]) + log1p(exp(-fabs(x[i])));
    const T sigmoid = T{1} / (T{1} + exp(-x[i]));
    out[i] = grad == nullptr ? (softplus - x[i] * z) / by : grad[i] * (sigmoid - z) / by;
  }
};

template <class T>
struct CountsValue {
  T ignore;
  const T* label;
  __device__ T operator()(int64_t i) const { return trunc(label[i]) != ignore ? T{1} : T{}; }
};
template <class T>
struct AtLeastLoop {
  T* out;
  __device__ void operator()(int64_t) const {
    if (!(*out > T(1e-5))) *out = T(1e-5);
  }
};

template <class T, class F>
struct ElementLoop {
  F f;
  functions::LossArrays<T, F> arrays;
  __device__ void operator()(int64_t i) const { arrays.compute(f, i); }
};

template <class T>
struct KldivValue {
  const T* x;
  const T* target;
  __device__ T operator()(int64_t i) const {
    const T t = target[i];
    return t > T{} ? t * (log(t) - x[i]) : T{};
  }
};
template <class T>
struct KldivLoop {
  KldivValue<T> value;
  T* out;
  __device__ T element(int64_t i) const { return value(i); }
};
template <class T>
struct KldivBackLoop {
  const T* target;
  const T* grad;
  T divisor;
  bool each;
  T* out;
  __device__ T element(int64_t i) const {
    const T g = each ? grad[i] : *grad / divisor;
    return target[i] > T{} ? -target[i] * g : T{};
  }
};

template <class T>
struct LabelSmoothLoop {
  T epsilon;
  int64_t classes;
  const T* x;
  const T* prior;
  T* out;
  __device__ T element(int64_t i) const {
    const T share =
        prior != nullptr ? epsilon * prior[i % classes] : epsilon / static_cast<T>(classes);
    return (T{1} - epsilon) * x[i] + share;
  }
};

template <class T>
struct SmoothL1Loop {
  SmoothL1Args<T> args;
  const T* x;
  const T* y;
  T* difference;
  T* out;
  template <class Team>
  __device__ void row(int64_t row) const {
    T sum{};
    for (int64_t j = team_thread<Team>(); j < args.length; j += Team::kSize) {
      const int64_t i = row * args.length + j;
      T d = x[i] - y[i];
      if (args.inside != nullptr) d *= args.inside[i];
      if (difference != nullptr) difference[i] = d;
      T loss = functions::smooth_l1(d, args.sigma2);
      if (args.outside != nullptr) loss *= args.outside[i];
      sum += loss;
    }
    sum = sum_of_team<Team>(sum);
    if (out != nullptr && team_thread<Team>() == 0) out[row] = sum;
  }
};
template <class T>
struct SmoothL1BackLoop {
  SmoothL1Args<T> args;
  const T* difference;
  const T* grad;
  T* x_grad;
  T* y_grad;
  __device__ void operator()(int64_t i) const {
    T back = functions::smooth_l1_slope(difference[i], args.sigma2);
    if (args.inside != nullptr) back *= args.inside[i];
    if (args.outside != nullptr) back *= args.outside[i];
    back *= grad[i / args.length];
    if (x_grad != nullptr) x_grad[i] = back;
    if (y_grad != nullptr) y_grad[i] = -back;
  }
};

template <class T>
struct BprRows {
  int64_t classes;
  const T* x;
  const int64_t* label;
  const T* grad;  // null: the loss
  T* out;

  template <class Team>
  __device__ void row(int64_t row) const {
    const T* xs = x + row * classes;
    const int64_t own = label[row];
    const bool known = own >= 0 && own < classes;
    const T base = known ? xs[own] : static_cast<T>(NAN);
    const T others = static_cast<T>(classes - 1);
    T sum{};
    for (int64_t j = team_thread<Team>(); j < classes; j += Team::kSize) {
      if (j == own) continue;
      const T d = xs[j] - base;
      const T term =
          grad == nullptr ? functions::softplus(d) : functions::bpr_slope(d, grad[row] / others);
      if (grad != nullptr) out[row * classes + j] = term;
      sum += term;
    }
    sum = sum_of_team<Team>(sum);
    if (team_thread<Team>() != 0) return;
    if (grad == nullptr) {
      out[row] = known ? sum / others : base;
    } else if (known) {
      out[row * classes + own] = -sum;
    }
  }
};

}  // namespace

template <class T>
void sigmoid_loss(RawStream stream, T ignore, const T* divisor, const T* x, const T* label,
                  const T* grad, T* out, int64_t n) {
  launch_each(stream, "sigmoid_loss", n, SigmoidLoop<T>{ignore, divisor, x, label, grad, out});
}

int64_t loss_partials(int64_t n) {
  return reduce_partials(sum_of_all(n));
}

template <class T>
void count_labels(RawStream stream, T ignore, const T* label, int64_t n, T* partial, T* out) {
  launch_reduce<T, SumOf>(stream, "count_labels", sum_of_all(n), CountsValue<T>{ignore, label},
                          T{1}, partial, out);
  launch_each(stream, "count_labels", 1, AtLeastLoop<T>{out});
}

template <class T, class F>
void element_loss(RawStream stream, const F& f, const functions::LossArrays<T, F>& arrays,
                  int64_t n) {
  launch_each(stream, "element_loss", n, ElementLoop<T, F>{f, arrays});
}

template <class T>
void kldiv(RawStream stream, const T* x, const T* target, T* out, int64_t n) {
  launch_each(stream, "kldiv", n, KldivLoop<T>{{x, target}, out});
}
template <class T>
void kldiv_sum(RawStream stream, const T* x, const T* target, T divisor, T* partial, T* out,
               int64_t n) {
  launch_reduce<T, SumOf>(stream, "kldiv_sum", sum_of_all(n), KldivValue<T>{x, target}, divisor,
                          partial, out);
}
template <class T>
void kldiv_back(RawStream stream, const T* target, const T* grad, T divisor, bool each, T* out,
                int64_t n) {
  launch_each(stream, "kldiv_back", n, KldivBackLoop<T>{target, grad, divisor, each, out});
}

template <class T>
void label_smooth(RawStream stream, T epsilon, int64_t classes, const T* x, const T* prior, T* out,
                  int64_t n) {
  launch_each(stream, "label_smooth", n, LabelSmoothLoop<T>{epsilon, classes, x, prior, out});
}

template <class T>
void smooth_l1_loss(RawStream stream, const SmoothL1Args<T>& args, const T* x, const T* y,
                    T* difference, T* out) {
  launch_rows(stream, "smooth_l1_loss", args.rows, args.length,
              SmoothL1Loop<T>{args, x, y, difference, out});
}
template <class T>
void smooth_l1_back(RawStream stream, const SmoothL1Args<T>& args, const T* difference,
                    const T* grad, T* x_grad, T* y_grad) {
  launch_each(stream, "smooth_l1_back", args.rows * args.length,
              SmoothL1BackLoop<T>{args, difference, grad, x_grad, y_grad});
}

template <class T>
void bpr_loss(RawStream stream, int64_t rows, int64_t classes, const T* x, const int64_t* label,
              T* out) {
  launch_rows(stream, "bpr_loss", rows, classes, BprRows<T>{classes, x, label, nullptr, out});
}
template <class T>
void bpr_back(RawStream stream, int64_t rows, int64_t classes, const T* x, const int64_t* label,
              const T* grad, T* out) {
  launch_rows(stream, "bpr_back", rows, classes, BprRows<T>{classes, x, label, grad, out});
}

#define FLEET_ELEMENTS(F, T)                                    \
  template void element_loss(RawStream, const functions::F<T>&, \
                             const functions::LossArrays<T, functions::F<T>>&, int64_t);
#define FLEET_INSTANTIATE(T)                                                                     \
  template void sigmoid_loss(RawStream, T, const T*, const T*, const T*, const T*, T*, int64_t); \
  template void count_labels(RawStream, T, const T*, int64_t, T*, T*);                           \
  template void kldiv(RawStream, const T*, const T*, T*, int64_t);                               \
  template void kldiv_sum(RawStream, const T*, const T*, T, T*, T*, int64_t);                    \
  template void kldiv_back(RawStream, const T*, const T*, T, bool, T*, int64_t);                 \
  template void label_smooth(RawStream, T, int64_t, const T*, const T*, T*, int64_t);            \
  template void smooth_l1_loss(RawStream, const SmoothL1Args<T>&, const T*, const T*, T*, T*);   \
  template void smooth_l1_back(RawStream, const SmoothL1Args<T>&, const T*, const T*, T*, T*);   \
  template void bpr_loss(RawStream, int64_t, int64_t, const T*, const int64_t*, T*);             \
  template void bpr_back(RawStream, int64_t, int64_t, const T*, const int64_t*, const T*, T*);   \
  FLEET_ELEMENTS(HingeLoss, T)                                                                   \
  FLEET_ELEMENTS(HingeBack, T)                                                                   \
  FLEET_ELEMENTS(LogLoss, T)                                                                     \
  FLEET_ELEMENTS(LogLossBack, T)                                                                 \
  FLEET_ELEMENTS(HuberLoss, T)                                                                   \
  FLEET_ELEMENTS(HuberBack, T)                                                                   \
  FLEET_ELEMENTS(RankLoss, T)                                                                    \
  FLEET_ELEMENTS(RankBack, T)                                                                    \
  FLEET_ELEMENTS(MarginRankLoss, T)                                                              \
  FLEET_ELEMENTS(MarginRankBack, T)
FLEET_INSTANTIATE(float)
FLEET_INSTANTIATE(double)
#undef FLEET_INSTANTIATE
#undef FLEET_ELEMENTS

}  // namespace fleet::fluid::cuda
