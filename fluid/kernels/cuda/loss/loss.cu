// Softmax and the losses of classification.
#include <limits>

#include "fluid/kernels/cuda/launch_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
__device__ T infinity() {
  return static_cast<T>(HUGE_VAL);
}

template <class T>
__device__ T not_a_number() {
  return static_cast<T>(nan(""));
}

// A probability of 0 costs 1e20, as on the CPU.
template <class T>
__device__ T safe_log(T x) {
  const T value = log(x);
  if (value == infinity<T>()) return T(1e20);
  if (value == -infinity<T>()) return T(-1e20);
  return value;
}

__device__ int64_t row_base(const Rows& rows, int64_t row) {
  return row / rows.inner * rows.n * rows.inner + row % rows.inner;
}

__device__ bool is_class(int64_t label, const Rows& rows) {
  return label >= 0 && label < rows.n;
}

template <class T>
__device__ T row_max(const Rows& rows, const T* x) {
  T largest = -infinity<T>();
  for (int64_t j = threadIdx.x; j < rows.n; j += kThreads) {
    const T value = x[j * rows.inner];
    largest = value > largest || value != value ? value : largest;
  }
  return max_block(largest);
}

// out = exp(x - largest) / sum, by the whole block.
template <class T>
__device__ void softmax_row(const Rows& rows, const T* x, T largest, T* out) {
  T sum{};
  for (int64_t j = threadIdx.x; j < rows.n; j += kThreads) {
    const T e = exp(x[j * rows.inner] - largest);
    out[j * rows.inner] = e;
    sum += e;
  }
  sum = sum_block(sum);
  for (int64_t j = threadIdx.x; j < rows.n; j += kThreads) out[j * rows.inner] /= sum;
}

template <class T>
struct SoftmaxLoop {
  Rows rows;
  const T* x;
  T* out;
  __device__ void operator()(int64_t row) const {
    const int64_t base = row_base(rows, row);
    softmax_row(rows, x + base, row_max(rows, x + base), out + base);
  }
};

template <class T>
struct SoftmaxBackLoop {
  Rows rows;
  const T* out;
  const T* grad;
  T* x_grad;
  __device__ void operator()(int64_t row) const {
    const int64_t base = row_base(rows, row);
    T dot{};
    for (int64_t j = threadIdx.x; j < rows.n; j += kThreads) {
      dot += out[base + j * rows.inner] * grad[base + j * rows.inner];
    }
    dot = sum_block(dot);
    for (int64_t j = threadIdx.x; j < rows.n; j += kThreads) {
      const int64_t at = base + j * rows.inner;
      x_grad[at] = out[at] * (grad[at] - dot);
    }
  }
};

template <class T>
struct HardLoop {
  Rows rows;
  const T* x;
  Labels<T> labels;
  T* y;
  T* match;
  __device__ void operator()(int64_t row) const {
    const int64_t label = labels.index[row];
    const bool ignored = label == labels.ignore;
    const T p = ignored                 ? T{1}
                : is_class(label, rows) ? x[row * rows.n + label]
                                        : not_a_number<T>();
    y[row] = ignored ? T{} : -safe_log(p);
    if (match != nullptr) match[row] = ignored ? T{} : p;
  }
};

template <class T>
struct SoftLoop {
  Rows rows;
  const T* x;
  const T* soft;
  T* y;
  __device__ void operator()(int64_t row) const {
    T sum{};
    for (int64_t j = threadIdx.x; j < rows.n; j += kThreads) {
      const int64_t at = row * rows.n + j;
      sum += soft[at] * safe_log(x[at]);
    }
    sum = sum_block(sum);
    if (threadIdx.x == 0) y[row] = -sum;
  }
};

template <class T>
struct CrossEntropyBackLoop {
  Rows rows;
  const T* x;
  const T* match;
  Labels<T> labels;
  const T* y_grad;
  T* x_grad;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / rows.n;
    if (labels.index == nullptr) {
      x_grad[i] = -labels.soft[i] * y_grad[row] / x[i];
      return;
    }
    const int64_t label = labels.index[row];
    T value{};
    if (label != labels.ignore) {
      if (!is_class(label, rows)) value = not_a_number<T>();
      if (label == i % rows.n) value = -y_grad[row] / (x != nullptr ? x[i] : match[row]);
    }
    x_grad[i] = value;
  }
};

// Shifted logits are clipped at -64 in the loss, as on the CPU.
template <class T>
struct WithSoftmaxLoop {
  Rows rows;
  const T* logits;
  Labels<T> labels;
  T* probability;
  T* loss;

  __device__ T shifted(int64_t at, T largest) const {
    const T value = logits[at] - largest;
    return value < T(-64) ? T(-64) : value;
  }

  __device__ void operator()(int64_t row) const {
    const int64_t base = row_base(rows, row);
    const T largest = row_max(rows, logits + base);
    T sum{};
    for (int64_t j = threadIdx.x; j < rows.n; j += kThreads) {
      sum += exp(shifted(base + j * rows.inner, largest));
    }
    const T log_sum = log(sum_block(sum));
    T cost{};
    if (labels.index == nullptr) {
      for (int64_t j = threadIdx.x; j < rows.n; j += kThreads) {
        const int64_t at = base + j * rows.inner;
        cost += labels.soft[at] * (log_sum - shifted(at, largest));
      }
      cost = sum_block(cost);
    } else if (const int64_t label = labels.index[row]; label != labels.ignore) {
      cost = is_class(label, rows) ? log_sum - shifted(base + label * rows.inner, largest)
                                   : not_a_number<T>();
    }
    softmax_row(rows, logits + base, largest, probability + base);
    if (threadIdx.x == 0) loss[row] = cost;
  }
};

template <class T>
struct WithSoftmaxBackLoop {
  Rows rows;
  const T* probability;
  Labels<T> labels;
  const T* loss_grad;
  T* logits_grad;
  __device__ void operator()(int64_t at) const {
    const int64_t row = at / (rows.n * rows.inner) * rows.inner + at % rows.inner;
    const int64_t j = at / rows.inner % rows.n;
    if (labels.index == nullptr) {
      logits_grad[at] = loss_grad[row] * (probability[at] - labels.soft[at]);
      return;
    }
    const int64_t label = labels.index[row];
    const T target = label == j ? T{1} : T{};
    logits_grad[at] = label == labels.ignore   ? T{}
                      : !is_class(label, rows) ? not_a_number<T>()
                                               : loss_grad[row] * (probability[at] - target);
  }
};

}  // namespace

template <class T>
void softmax(RawStream stream, const Rows& rows, const T* x, T* out) {
  launch_each_row(stream, "softmax", rows.outer * rows.inner, SoftmaxLoop<T>{rows, x, out});
}

template <class T>
void softmax_back(RawStream stream, const Rows& rows, const T* out, const T* grad, T* x_grad) {
  launch_each_row(stream, "softmax_back", rows.outer * rows.inner,
                  SoftmaxBackLoop<T>{rows, out, grad, x_grad});
}

template <class T>
void cross_entropy(RawStream stream, const Rows& rows, const T* x, const Labels<T>& labels, T* y,
                   T* match) {
  if (labels.index != nullptr) {
    launch_each(stream, "cross_entropy", rows.outer, HardLoop<T>{rows, x, labels, y, match});
  } else {
    launch_each_row(stream, "cross_entropy", rows.outer, SoftLoop<T>{rows, x, labels.soft, y});
  }
}

template <class T>
void cross_entropy_back(RawStream stream, const Rows& rows, const T* x, const T* match,
                        const Labels<T>& labels, const T* y_grad, T* x_grad) {
  launch_each(stream, "cross_entropy_back", rows.outer * rows.n,
              CrossEntropyBackLoop<T>{rows, x, match, labels, y_grad, x_grad});
}

template <class T>
void softmax_with_cross_entropy(RawStream stream, const Rows& rows, const T* logits,
                                const Labels<T>& labels, T* probability, T* loss) {
  launch_each_row(stream, "softmax_with_cross_entropy", rows.outer * rows.inner,
                  WithSoftmaxLoop<T>{rows, logits, labels, probability, loss});
}

template <class T>
void softmax_with_cross_entropy_back(RawStream stream, const Rows& rows, const T* probability,
                                     const Labels<T>& labels, const T* loss_grad, T* logits_grad) {
  launch_each(stream, "softmax_with_cross_entropy_back", rows.outer * rows.n * rows.inner,
              WithSoftmaxBackLoop<T>{rows, probability, labels, loss_grad, logits_grad});
}

#define FLEET_INSTANTIATE(T)                                                                       \
  template void softmax(RawStream, const Rows&, const T*, T*);                                     \
  template void softmax_back(RawStream, const Rows&, const T*, const T*, T*);                      \
  template void cross_entropy(RawStream, const Rows&, const T*, const Labels<T>&, T*, T*);         \
  template void cross_entropy_back(RawStream, const Rows&, const T*, const T*, const Labels<T>&,   \
                                   const T*, T*);                                                  \
  template void softmax_with_cross_entropy(RawStream, const Rows&, const T*, const Labels<T>&, T*, \
                                           T*);                                                    \
  template void softmax_with_cross_entropy_back(RawStream, const Rows&, const T*,                  \
                                                const Labels<T>&, const T*, T*);
FLEET_INSTANTIATE(float)
FLEET_INSTANTIATE(double)
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
