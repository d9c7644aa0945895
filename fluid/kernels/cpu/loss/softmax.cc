#include "fluid/kernels/cpu/loss/softmax.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/strings.h"
#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/math/lanes.h"
#include "fluid/kernels/cpu/math/lines.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/loss/loss.h"

namespace fleet::fluid::cpu {

namespace {

// Of elements that lie side by side. Numbers alone are compared: one that is not a number makes the
// whole row so by its exponential.
template <class T>
T largest_of(const T* x, int64_t n) {
  using Vector [[gnu::vector_size(32), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
  constexpr int64_t kWidth = 32 / sizeof(T);
  constexpr int64_t kStep = 4 * kWidth;
  const auto larger = [](auto a, auto b) { return b > a ? b : a; };
  T largest = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  if (n >= kStep) {
    const auto load = [x](int64_t at) { return *reinterpret_cast<const Vector*>(x + at); };
    Vector lanes[4];
    for (int k = 0; k < 4; ++k) lanes[k] = load(k * kWidth);
    for (i = kStep; i + kStep <= n; i += kStep) {
      for (int k = 0; k < 4; ++k) lanes[k] = larger(lanes[k], load(i + k * kWidth));
    }
    for (const Vector& lane : lanes) {
      for (int64_t k = 0; k < kWidth; ++k) largest = larger(largest, lane[k]);
    }
  }
  return std::accumulate(x + i, x + n, largest, larger);
}

template <class T, bool Simd>
void exponentials(T* x, int64_t n) {
  if constexpr (Simd) {
    isa_loops().exp(x, x, static_cast<size_t>(n));
  } else {
    for (int64_t i = 0; i < n; ++i) x[i] = std::exp(x[i]);
  }
}

// Of a row that lies side by side; gives the sum.
template <class T, bool Simd>
T softmax_of_row(int64_t n, const T* x, T largest, T* out) {
  constexpr int64_t kElements = 1024;  // that stay in the first cache from step to step
  LaneSum<T> lanes;
  for (int64_t at = 0; at < n; at += kElements) {
    const int64_t length = std::min(kElements, n - at);
    for (int64_t j = at; j < at + length; ++j) out[j] = x[j] - largest;
    exponentials<T, Simd>(out + at, length);
    lanes.add(length, [=](int64_t j) { return out[at + j]; });
  }
  const T sum = lanes.total();
  for (int64_t j = 0; j < n; ++j) out[j] /= sum;
  return sum;
}

// Of rows that lie side by side, so many at a time as the first cache holds.
template <class T, bool Simd>
void softmax_of_rows(int64_t rows, int64_t n, const T* x, T* out, SoftmaxLine<T>* lines) {
  constexpr int64_t kElements = 4096;
  const auto keep = [lines](int64_t row, T largest, T sum) {
    if (lines != nullptr) lines[row] = {largest, sum};
  };
  if (n > kElements / 2) {
    for (int64_t row = 0; row < rows; ++row) {
      const T largest = largest_of(x + row * n, n);
      keep(row, largest, softmax_of_row<T, Simd>(n, x + row * n, largest, out + row * n));
    }
    return;
  }
  const int64_t at_a_time = kElements / std::max<int64_t>(1, n);
  std::array<T, kElements> largest;
  for (int64_t first = 0; first < rows; first += at_a_time) {
    const int64_t last = std::min(first + at_a_time, rows);
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * n;
      const T most = largest_of(x + at, n);
      for (int64_t j = at; j < at + n; ++j) out[j] = x[j] - most;
      largest[static_cast<size_t>(row - first)] = most;
    }
    exponentials<T, Simd>(out + first * n, (last - first) * n);
    for (int64_t row = first; row < last; ++row) {
      const int64_t at = row * n;
      const T sum = sum_of(out + at, n);
      for (int64_t j = at; j < at + n; ++j) out[j] /= sum;
      keep(row, largest[static_cast<size_t>(row - first)], sum);
    }
  }
}

// out = x - largest for `width` lines abreast, of n elements that are `inner` apart.
template <class T>
void shift_abreast(int64_t n, int64_t inner, int64_t width, const T* x, T* out, T* largest) {
  std::fill_n(largest, width, -std::numeric_limits<T>::infinity());
  for (int64_t j = 0; j < n; ++j) {
    const T* row = x + j * inner;
    for (int64_t i = 0; i < width; ++i) largest[i] = std::max(largest[i], row[i]);
  }
  for (int64_t j = 0; j < n * inner; j += inner) {
    for (int64_t i = 0; i < width; ++i) out[j + i] = x[j + i] - largest[i];
  }
}

template <class T>
void divide_abreast(int64_t n, int64_t inner, int64_t width, T* out, T* sum) {
  std::fill_n(sum, width, T{});
  for (int64_t j = 0; j < n * inner; j += inner) {
    for (int64_t i = 0; i < width; ++i) sum[i] += out[j + i];
  }
  for (int64_t j = 0; j < n * inner; j += inner) {
    for (int64_t i = 0; i < width; ++i) out[j + i] /= sum[i];
  }
}

// Of lines whose elements are `inner` apart.
template <class T, bool Simd>
void softmax_across(const AxisView& view, int64_t begin, int64_t end, const T* x, T* out,
                    SoftmaxLine<T>* lines) {
  const int64_t n = view.n;
  const int64_t inner = view.inner;
  const bool whole = inner <= kLinesAbreast;
  T numbers[kLinesAbreast];
  each_abreast(view, begin, end, [&](int64_t first, int64_t line, int64_t width) {
    shift_abreast(n, inner, width, x + first, out + first, numbers);
    for (int64_t i = 0; lines != nullptr && i < width; ++i) {
      lines[line - begin + i].largest = numbers[i];
    }
    for (int64_t j = 0; !whole && j < n; ++j) {
      exponentials<T, Simd>(out + first + j * inner, width);
    }
  });
  if (whole) exponentials<T, Simd>(out + begin * n, (end - begin) * n);
  each_abreast(view, begin, end, [&](int64_t first, int64_t line, int64_t width) {
    divide_abreast(n, inner, width, out + first, numbers);
    for (int64_t i = 0; lines != nullptr && i < width; ++i) {
      lines[line - begin + i].sum = numbers[i];
    }
  });
}

template <class T, bool Simd>
std::unique_ptr<Prepared> prepare_softmax(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, context.attrs<SoftmaxAttrs>().axis);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    split_lines(view, c.tiles(), kSoftmaxCost, [&](int64_t begin, int64_t end) {
      softmax<T, Simd>(view, begin, end, xs, outs, nullptr);
    });
  });
}

// x_grad = out * (grad - sum of out * grad) in one row.
template <class T>
void softmax_row_gradient(const T* out, const T* grad, T* x_grad, int64_t n) {
  T dot{};
  if (n < LaneSum<T>::kLanes) {
    for (int64_t j = 0; j < n; ++j) dot += out[j] * grad[j];
  } else {
    LaneSum<T> sum;
    sum.add(n, [=](int64_t j) { return out[j] * grad[j]; });
    dot = sum.total();
  }
  for (int64_t j = 0; j < n; ++j) x_grad[j] = out[j] * (grad[j] - dot);
}

// The same for `width` lines abreast, whose elements are `inner` apart, with sums in its order.
template <class T>
void softmax_gradient_abreast(const T* out, const T* grad, T* x_grad, int64_t n, int64_t inner,
                              int64_t width) {
  constexpr int64_t kLanes = LaneSum<T>::kLanes;
  const int64_t lanes = n < kLanes ? 1 : kLanes;
  T sums[kLanes][kLinesAbreast];
  for (int64_t lane = 0; lane < lanes; ++lane) std::fill_n(sums[lane], width, T{});
  for (int64_t j = 0; j < n; ++j) {
    const T* outs = out + j * inner;
    const T* grads = grad + j * inner;
    T* sum = sums[j % lanes];
    for (int64_t i = 0; i < width; ++i) sum[i] += outs[i] * grads[i];
  }
  for (int64_t step = lanes / 2; step > 0; step /= 2) {
    for (int64_t lane = 0; lane < step; ++lane) {
      for (int64_t i = 0; i < width; ++i) sums[lane][i] += sums[lane + step][i];
    }
  }
  for (int64_t j = 0; j < n * inner; j += inner) {
    for (int64_t i = 0; i < width; ++i) x_grad[j + i] = out[j + i] * (grad[j + i] - sums[0][i]);
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_softmax_grad(PrepareContext& context) {
  const Shape shape = context.in("Out").shape;
  const AxisView view(shape, context.attrs<SoftmaxAttrs>().axis);
  context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const int out = context.input("Out");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* outs = c.in<T>(out);
    const T* grads = c.in<T>(grad);
    T* x_grads = c.out<T>(x_grad);
    split_lines(view, c.tiles(), 3, [&](int64_t begin, int64_t end) {
      if (view.inner == 1) {
        for (int64_t at = begin * view.n; at < end * view.n; at += view.n) {
          softmax_row_gradient(outs + at, grads + at, x_grads + at, view.n);
        }
        return;
      }
      each_abreast(view, begin, end, [&](int64_t first, int64_t, int64_t width) {
        softmax_gradient_abreast(outs + first, grads + first, x_grads + first, view.n, view.inner,
                                 width);
      });
    });
  });
}

}  // namespace

template <class T, bool Simd>
void softmax(const AxisView& view, int64_t begin, int64_t end, const T* x, T* out,
             SoftmaxLine<T>* lines) {
  if (view.inner != 1) return softmax_across<T, Simd>(view, begin, end, x, out, lines);
  const int64_t first = begin * view.n;
  softmax_of_rows<T, Simd>(end - begin, view.n, x + first, out + first, lines);
}

template void softmax<float, true>(const AxisView&, int64_t, int64_t, const float*, float*,
                                   SoftmaxLine<float>*);
template void softmax<float, false>(const AxisView&, int64_t, int64_t, const float*, float*,
                                    SoftmaxLine<float>*);
template void softmax<double, false>(const AxisView&, int64_t, int64_t, const double*, double*,
                                     SoftmaxLine<double>*);

void register_softmax(KernelTable& table) {
  table.add_last("softmax", DeviceKind::kCpu, DType::kFloat32,
                 {"simd", prepare_softmax<float, true>});
  table.add_last("softmax", DeviceKind::kCpu, DType::kFloat32,
                 {"reference", prepare_softmax<float, false>});
  table.add_last("softmax", DeviceKind::kCpu, DType::kFloat64,
                 {"reference", prepare_softmax<double, false>});
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    table.add_last("softmax_grad", DeviceKind::kCpu, dtype_of<T>(),
                   {"loop", prepare_softmax_grad<T>});
  });
}

}  // namespace fleet::fluid::cpu
