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

template <class T>
struct LogLossLoop {
  T epsilon;
  const T* predicted;
  const T* label;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t i) const {
    const T p = predicted[i];
    const T z = label[i];
    const T yes = p + epsilon;
    const T no = T{1} - p + epsilon;
    out[i] = grad == nullptr ? -z * log(yes) - (T{1} - z) * log(no)
                             : grad[i] * (-z / yes + (T{1} - z) / no);
  }
};

template <class T>
struct HingeLoop {
  const T* logits;
  const T* label;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t i) const {
    const T sign = T{2} * label[i] - T{1};
    const T margin = T{1} - sign * logits[i];
    if (grad == nullptr) {
      out[i] = margin < T{} ? T{} : margin;
    } else {
      out[i] = margin > T{} ? -sign * grad[i] : T{};
    }
  }
};

template <class T>
struct HuberLoop {
  T delta;
  const T* x;
  const T* y;
  T* residual;
  T* out;
  __device__ void operator()(int64_t i) const {
    const T r = y[i] - x[i];
    const T size = fabs(r);
    if (residual != nullptr) residual[i] = r;
    if (out == nullptr) return;
    out[i] = size <= delta ? T(0.5) * r * r : delta * (size - T(0.5) * delta);
  }
};
template <class T>
struct HuberBackLoop {
  T delta;
  const T* residual;
  const T* grad;
  T* x_grad;
  T* y_grad;
  __device__ void operator()(int64_t i) const {
    const T r = residual[i];
    const T back = (r > delta ? delta : r < -delta ? -delta : r) * grad[i];
    if (x_grad != nullptr) x_grad[i] = -back;
    if (y_grad != nullptr) y_grad[i] = back;
  }
};

}  // namespace

template <class T>
void sigmoid_loss(RawStream stream, T ignore, const T* divisor, const T* x, const T* label,
                  const T* grad, T* out, int64_t n) {
  launch_each(stream, "sigmoid_loss", n, SigmoidLoop<T>{ignore, divisor, x, label, grad, out});
}

int64_t count_partials(int64_t n) {
  return reduce_partials(sum_of_all(n));
}

template <class T>
void count_labels(RawStream stream, T ignore, const T* label, int64_t n, T* partial, T* out) {
  launch_reduce<T, SumOf>(stream, "count_labels", sum_of_all(n), CountsValue<T>{ignore, label},
                          T{1}, partial, out);
  launch_each(stream, "count_labels", 1, AtLeastLoop<T>{out});
}

template <class T>
void log_loss(RawStream stream, T epsilon, const T* predicted, const T* label, const T* grad,
              T* out, int64_t n) {
  launch_each(stream, "log_loss", n, LogLossLoop<T>{epsilon, predicted, label, grad, out});
}

template <class T>
void hinge_loss(RawStream stream, const T* logits, const T* label, const T* grad, T* out,
                int64_t n) {
  launch_each(stream, "hinge_loss", n, HingeLoop<T>{logits, label, grad, out});
}

template <class T>
void huber_loss(RawStream stream, T delta, const T* x, const T* y, T* residual, T* out, int64_t n) {
  launch_each(stream, "huber_loss", n, HuberLoop<T>{delta, x, y, residual, out});
}

template <class T>
void huber_back(RawStream stream, T delta, const T* residual, const T* grad, T* x_grad, T* y_grad,
                int64_t n) {
  launch_each(stream, "huber_back", n, HuberBackLoop<T>{delta, residual, grad, x_grad, y_grad});
}

#define FLEET_INSTANTIATE(T)                                                                     \
  template void sigmoid_loss(RawStream, T, const T*, const T*, const T*, const T*, T*, int64_t); \
  template void count_labels(RawStream, T, const T*, int64_t, T*, T*);                           \
  template void log_loss(RawStream, T, const T*, const T*, const T*, T*, int64_t);               \
  template void hinge_loss(RawStream, const T*, const T*, const T*, T*, int64_t);                \
  template void huber_loss(RawStream, T, const T*, const T*, T*, T*, int64_t);                   \
  template void huber_back(RawStream, T, const T*, const T*, T*, T*, int64_t)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
