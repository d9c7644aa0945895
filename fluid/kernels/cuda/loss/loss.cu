// Softmax and the losses of classification.
#include <limits>

#include "fluid/kernels/cuda/divisor_impl.h"
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

template <class Team, class T>
__device__ T row_max(const Rows& rows, const T* x) {
  T largest = -infinity<T>();
#pragma unroll 4
  for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
    const T value = x[j * rows.inner];
    largest = value > largest || value != value ? value : largest;
  }
  return max_of_team<Team>(largest);
}

// The sum of exp(x - largest).
template <class Team, class T>
__device__ T row_sum(const Rows& rows, const T* x, T largest) {
  T sum{};
#pragma unroll 4
  for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
    sum += exp(x[j * rows.inner] - largest);
  }
  return sum_of_team<Team>(sum);
}

template <class Team, class T>
__device__ void softmax_row(const Rows& rows, const T* x, T largest, T sum, T* out) {
  const T share = T{1} / sum;
#pragma unroll 4
  for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
    out[j * rows.inner] = exp(x[j * rows.inner] - largest) * share;
  }
}

template <class T>
struct SoftmaxLoop {
  Rows rows;
  const T* x;
  T* out;
  template <class Team>
  __device__ void row(int64_t row) const {
    const int64_t base = row_base(rows, row);
    const T largest = row_max<Team>(rows, x + base);
    const T sum = row_sum<Team>(rows, x + base, largest);
    softmax_row<Team>(rows, x + base, largest, sum, out + base);
  }
};

template <class T>
struct SoftmaxBackLoop {
  Rows rows;
  const T* out;
  const T* grad;
  T* x_grad;
  template <class Team>
  __device__ void row(int64_t row) const {
    const int64_t base = row_base(rows, row);
    T dot{};
#pragma unroll 4
    for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
      dot += out[base + j * rows.inner] * grad[base + j * rows.inner];
    }
    dot = sum_of_team<Team>(dot);
#pragma unroll 4
    for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
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
  WideDivisor width;  // rows.n
  const T* x;
  const T* match;
  Labels<T> labels;
  const T* y_grad;
  T* out;
  __device__ T element(int64_t i) const {
    int64_t row = i;
    const int64_t j = width.split(row);
    if (labels.index == nullptr) return -labels.soft[i] * y_grad[row] / x[i];
    const int64_t label = labels.index[row];
    if (label == labels.ignore) return T{};
    if (!is_class(label, rows)) return not_a_number<T>();
    return label == j ? -y_grad[row] / (x != nullptr ? x[i] : match[row]) : T{};
  }
};

// Shifted logits are clipped at -64 in the loss, as on the CPU. In the sum over the row that makes
// no difference: what is clipped is below the rounding of the largest's 1.
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

  template <class Team>
  __device__ void row(int64_t row) const {
    const int64_t base = row_base(rows, row);
    const T largest = row_max<Team>(rows, logits + base);
    const T sum = row_sum<Team>(rows, logits + base, largest);
    const T log_sum = log(sum);
    T cost{};
    if (labels.index == nullptr) {
      for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
        const int64_t at = base + j * rows.inner;
        cost += labels.soft[at] * (log_sum - shifted(at, largest));
      }
      cost = sum_of_team<Team>(cost);
    } else if (const int64_t label = labels.index[row]; label != labels.ignore) {
      cost = is_class(label, rows) ? log_sum - shifted(base + label * rows.inner, largest)
                                   : not_a_number<T>();
    }
    softmax_row<Team>(rows, logits + base, largest, sum, probability + base);
    if (team_thread<Team>() == 0) loss[row] = cost;
  }
};

template <class T>
struct WithSoftmaxBackLoop {
  Rows rows;
  const T* probability;
  Labels<T> labels;
  const T* loss_grad;
  T* logits_grad;
  template <class Team>
  __device__ void row(int64_t row) const {
    const int64_t base = row_base(rows, row);
    const T incoming = loss_grad[row];
    const int64_t label = labels.index == nullptr ? 0 : labels.index[row];
    const bool ignored = labels.index != nullptr && label == labels.ignore;
    const bool bad = labels.index != nullptr && !ignored && !is_class(label, rows);
#pragma unroll 4
    for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
      const int64_t at = base + j * rows.inner;
      const T hard = label == j ? T{1} : T{};
      const T target = labels.index == nullptr ? labels.soft[at] : hard;
      const T value = bad ? not_a_number<T>() : incoming * (probability[at] - target);
      logits_grad[at] = ignored ? T{} : value;
    }
  }
};

}  // namespace

template <class T>
void softmax(RawStream stream, const Rows& rows, const T* x, T* out) {
  launch_rows(stream, "softmax", rows.outer * rows.inner, rows.n, SoftmaxLoop<T>{rows, x, out});
}

template <class T>
void softmax_back(RawStream stream, const Rows& rows, const T* out, const T* grad, T* x_grad) {
  launch_rows(stream, "softmax_back", rows.outer * rows.inner, rows.n,
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
  const int64_t n = rows.outer * rows.n;
  launch_each(
      stream, "cross_entropy_back", n,
      CrossEntropyBackLoop<T>{rows, WideDivisor(rows.n, n), x, match, labels, y_grad, x_grad});
}

template <class T>
void softmax_with_cross_entropy(RawStream stream, const Rows& rows, const T* logits,
                                const Labels<T>& labels, T* probability, T* loss) {
  launch_rows(stream, "softmax_with_cross_entropy", rows.outer * rows.inner, rows.n,
              WithSoftmaxLoop<T>{rows, logits, labels, probability, loss});
}

template <class T>
void softmax_with_cross_entropy_back(RawStream stream, const Rows& rows, const T* probability,
                                     const Labels<T>& labels, const T* loss_grad, T* logits_grad) {
  launch_rows(stream, "softmax_with_cross_entropy_back", rows.outer * rows.inner, rows.n,
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
