#include "fluid/kernels/cpu/loss/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/strings.h"
#include "fluid/kernels/cpu/isa.h"
#include "fluid/kernels/cpu/nn/lanes.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/loss/loss.h"

namespace fleet::fluid::cpu {

AxisView::AxisView(const Shape& shape, int axis) {
  if (axis < 0) axis += shape.rank();
  outer = shape.numel(0, axis);
  n = shape[axis];
  inner = shape.numel(axis + 1, shape.rank());
}

namespace {

// NaN when one of them is.
template <class T>
T larger(T a, T b) {
  return b > a || b != b ? b : a;
}

// Of elements that lie side by side.
template <class T>
T largest_of(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<T>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = larger(lanes[lane], x[i + lane]);
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] = larger(lanes[lane], x[i]);
  return std::accumulate(lanes + 1, lanes + kLanes, lanes[0], larger<T>);
}

// x minus the largest of its row, laid out like x.
template <class T>
void subtract_max(const AxisView& view, const T* x, T* out) {
  if (view.inner == 1) {
    for (int64_t o = 0; o < view.outer; ++o, x += view.n, out += view.n) {
      const T largest = largest_of(x, view.n);
      for (int64_t j = 0; j < view.n; ++j) out[j] = x[j] - largest;
    }
    return;
  }
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) {
      const int64_t base = o * view.n * view.inner + i;
      T largest = -std::numeric_limits<T>::infinity();
      for (int64_t j = 0; j < view.n; ++j) largest = larger(largest, x[base + j * view.inner]);
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t at = base + j * view.inner;
        out[at] = x[at] - largest;
      }
    }
  }
}

template <class T>
void normalize_rows(const AxisView& view, T* out) {
  if (view.inner == 1) {
    for (int64_t o = 0; o < view.outer; ++o, out += view.n) {
      LaneSum<T> lanes;
      lanes.add(view.n, [out](int64_t j) { return out[j]; });
      const T sum = lanes.total();
      for (int64_t j = 0; j < view.n; ++j) out[j] /= sum;
    }
    return;
  }
  for (int64_t o = 0; o < view.outer; ++o) {
    for (int64_t i = 0; i < view.inner; ++i) {
      T* row = out + o * view.n * view.inner + i;
      T sum{};
      for (int64_t j = 0; j < view.n; ++j) sum += row[j * view.inner];
      for (int64_t j = 0; j < view.n; ++j) row[j * view.inner] /= sum;
    }
  }
}

template <class T, bool Simd>
std::unique_ptr<Prepared> prepare_softmax(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, context.attrs<SoftmaxAttrs>().axis);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared(
      [=](const KernelContext& c) { softmax<T, Simd>(view, c.in<T>(x), c.out<T>(out)); });
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
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t i = 0; i < view.inner; ++i) {
        const int64_t base = o * view.n * view.inner + i;
        T dot{};
        for (int64_t j = 0; j < view.n; ++j) {
          dot += outs[base + j * view.inner] * grads[base + j * view.inner];
        }
        for (int64_t j = 0; j < view.n; ++j) {
          const int64_t at = base + j * view.inner;
          x_grads[at] = outs[at] * (grads[at] - dot);
        }
      }
    }
  });
}

}  // namespace

template <class T, bool Simd>
void softmax(const AxisView& view, const T* x, T* out) {
  subtract_max(view, x, out);
  const int64_t count = view.outer * view.n * view.inner;
  if constexpr (Simd) {
    isa_loops().exp(out, out, static_cast<size_t>(count));
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = std::exp(out[i]);
  }
  normalize_rows(view, out);
}

template void softmax<float, true>(const AxisView&, const float*, float*);
template void softmax<float, false>(const AxisView&, const float*, float*);
template void softmax<double, false>(const AxisView&, const double*, double*);

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
