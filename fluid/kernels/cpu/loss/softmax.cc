#include "fluid/kernels/cpu/loss/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/strings.h"
#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/nn/lanes.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tiles.h"
#include "fluid/ops/loss/loss.h"

namespace fleet::fluid::cpu {

namespace {

// Of elements that lie side by side. Numbers alone are compared: one that is not a number makes the
// whole row so by its exponential.
template <class T>
T largest_of(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  const auto larger = [](T a, T b) { return b > a ? b : a; };
  T largest = -std::numeric_limits<T>::infinity();
  int64_t i = 0;
  if (n >= kLanes) {
    T lanes[kLanes];
    std::copy_n(x, kLanes, lanes);
    for (i = kLanes; i + kLanes <= n; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = larger(lanes[lane], x[i + lane]);
    }
    largest = std::accumulate(lanes, lanes + kLanes, largest, larger);
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

// Of rows that lie side by side, so many at a time as the first cache holds.
template <class T, bool Simd>
void softmax_of_rows(int64_t rows, int64_t n, const T* x, T* out) {
  constexpr int64_t kElements = 4096;
  const int64_t at_a_time = std::max<int64_t>(1, kElements / std::max<int64_t>(1, n));
  for (int64_t first = 0; first < rows; first += at_a_time) {
    const int64_t begin = first * n;
    const int64_t end = std::min(first + at_a_time, rows) * n;
    for (int64_t at = begin; at < end; at += n) {
      const T largest = largest_of(x + at, n);
      for (int64_t j = at; j < at + n; ++j) out[j] = x[j] - largest;
    }
    exponentials<T, Simd>(out + begin, end - begin);
    for (int64_t at = begin; at < end; at += n) {
      const T sum = sum_of(out + at, n);
      for (int64_t j = at; j < at + n; ++j) out[j] /= sum;
    }
  }
}

// Of rows whose elements are `inner` apart.
template <class T, bool Simd>
void softmax_across(const AxisView& view, const T* x, T* out) {
  const auto each_row = [&](auto row) {
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t i = 0; i < view.inner; ++i) row(o * view.n * view.inner + i);
    }
  };
  each_row([&](int64_t first) {
    T largest = -std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < view.n; ++j) largest = std::max(largest, x[first + j * view.inner]);
    for (int64_t j = 0; j < view.n; ++j) {
      const int64_t at = first + j * view.inner;
      out[at] = x[at] - largest;
    }
  });
  exponentials<T, Simd>(out, view.outer * view.n * view.inner);
  each_row([&](int64_t first) {
    T sum{};
    for (int64_t j = 0; j < view.n; ++j) sum += out[first + j * view.inner];
    for (int64_t j = 0; j < view.n; ++j) out[first + j * view.inner] /= sum;
  });
}

template <class T, bool Simd>
std::unique_ptr<Prepared> prepare_softmax(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, context.attrs<SoftmaxAttrs>().axis);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    softmax<T, Simd>(view, c.in<T>(x), c.out<T>(out), c.tiles());
  });
}

// x_grad = out * (grad - sum of out * grad) in one row whose elements are `step` apart; an integral
// constant for rows that lie side by side.
template <class T, class Step>
void softmax_row_gradient(const T* out, const T* grad, T* x_grad, int64_t n, Step step) {
  T dot{};
  if (n < LaneSum<T>::kLanes) {
    for (int64_t j = 0; j < n; ++j) dot += out[j * step] * grad[j * step];
  } else {
    LaneSum<T> sum;
    sum.add(n, [=](int64_t j) { return out[j * step] * grad[j * step]; });
    dot = sum.total();
  }
  for (int64_t j = 0; j < n; ++j) x_grad[j * step] = out[j * step] * (grad[j * step] - dot);
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
    const auto rows = [&](int64_t begin, int64_t end, auto step) {
      for (int64_t o = begin; o < end; ++o) {
        for (int64_t i = 0; i < view.inner; ++i) {
          const int64_t at = o * view.n * view.inner + i;
          softmax_row_gradient(c.in<T>(out) + at, c.in<T>(grad) + at, c.out<T>(x_grad) + at, view.n,
                               step);
        }
      }
    };
    c.tiles().ranges(view.outer, rows_of_tile(view.n * view.inner),
                     [&](int64_t begin, int64_t end) {
                       if (view.inner == 1)
                         return rows(begin, end, std::integral_constant<int64_t, 1>{});
                       rows(begin, end, view.inner);
                     });
  });
}

}  // namespace

template <class T, bool Simd>
void softmax(const AxisView& view, const T* x, T* out, const Tiles& tiles) {
  if (view.inner != 1) return softmax_across<T, Simd>(view, x, out);
  tiles.ranges(view.outer, rows_of_tile(view.n), [&](int64_t begin, int64_t end) {
    softmax_of_rows<T, Simd>(end - begin, view.n, x + begin * view.n, out + begin * view.n);
  });
}

template void softmax<float, true>(const AxisView&, const float*, float*, const Tiles&);
template void softmax<float, false>(const AxisView&, const float*, float*, const Tiles&);
template void softmax<double, false>(const AxisView&, const double*, double*, const Tiles&);

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
