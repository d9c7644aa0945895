// layer_norm and group_norm: what is normalised is a row of A runs of B elements.
#include <algorithm>
#include <cmath>

#include "base/process/prefetch.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/math/lanes.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/kernels/nn/norm_rows.h"
#include "fluid/ops/nn/norm.h"

namespace fleet::fluid::cpu {
namespace {

// The sum of value(position in x, position in Scale) over a row.
template <class T, class F>
T row_sum(const NormRows& r, int64_t row, F value) {
  LaneSum<T> sum;
  const int64_t runs = r.runs_of(row);
  const int64_t length = r.length_of(row);
  for (int64_t run = 0; run < runs; ++run) {
    const int64_t base = r.start(row) + run * r.run_stride;
    const int64_t channel = r.channel(row, run);
    if (r.channel_per_run) {
      sum.add(length, [&](int64_t i) { return value(base + i, channel); });
    } else {
      sum.add(length, [&](int64_t i) { return value(base + i, channel + i); });
    }
  }
  return sum.total();
}

template <class F>
void row_each(const NormRows& r, int64_t row, F f) {
  const int64_t runs = r.runs_of(row);
  const int64_t length = r.length_of(row);
  for (int64_t run = 0; run < runs; ++run) {
    const int64_t base = r.start(row) + run * r.run_stride;
    const int64_t channel = r.channel(row, run);
    if (r.channel_per_run) {
      for (int64_t i = 0; i < length; ++i) f(base + i, channel);
    } else {
      for (int64_t i = 0; i < length; ++i) f(base + i, channel + i);
    }
  }
}

// Over a row, about.
constexpr int64_t kPasses = 4;

template <class F>
void each_norm_row(const NormRows& r, const Tiles& tiles, const F& f) {
  tiles.split(r.count, kPasses * r.runs * r.length, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

// Brings the row behind this one into the first cache, where it fits beside this one.
template <class T>
void prefetch_next(const NormRows& r, int64_t row, const T* x, const T* y) {
  constexpr size_t kMost = 4096;
  const size_t bytes = static_cast<size_t>(r.length) * sizeof(T);
  if (r.runs != 1 || bytes > kMost || row + 1 == r.count) return;
  const int64_t next = r.start(row + 1);
  prefetch(x + next, bytes);
  prefetch(y + next, bytes);
}

template <class T>
std::unique_ptr<Prepared> prepare_norm(PrepareContext& context, const RowNorm& norm) {
  const NormRows r = norm.rows;
  check_norm_vectors(context, r, dtype_of<T>());
  const int x = context.input("X");
  const int scale = context.input("Scale");
  const int bias = context.input("Bias");
  const int y = context.set_output("Y", context.in("X").shape, dtype_of<T>());
  const int mean = context.set_output("Mean", norm.statistics, dtype_of<T>());
  const int variance = context.set_output("Variance", norm.statistics, dtype_of<T>());
  return make_prepared([=, epsilon = static_cast<T>(norm.epsilon)](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* scales = scale >= 0 ? c.in<T>(scale) : nullptr;
    const T* biases = bias >= 0 ? c.in<T>(bias) : nullptr;
    T* ys = c.out<T>(y);
    each_norm_row(r, c.tiles(), [&](int64_t row) {
      const T size = static_cast<T>(r.size(row));
      const T centre = row_sum<T>(r, row, [xs](int64_t i, int64_t) { return xs[i]; }) / size;
      const T spread = row_sum<T>(r, row,
                                  [xs, centre](int64_t i, int64_t) {
                                    return (xs[i] - centre) * (xs[i] - centre);
                                  }) /
                       size;
      prefetch_next(r, row, xs, ys);
      c.out<T>(mean)[row] = centre;
      c.out<T>(variance)[row] = spread;
      const T inverse = T{1} / std::sqrt(spread + epsilon);
      const auto normal = [=](int64_t i) { return (xs[i] - centre) * inverse; };
      if (scales != nullptr && biases != nullptr) {
        row_each(r, row, [=](int64_t i, int64_t k) { ys[i] = normal(i) * scales[k] + biases[k]; });
      } else if (scales != nullptr) {
        row_each(r, row, [=](int64_t i, int64_t k) { ys[i] = normal(i) * scales[k]; });
      } else if (biases != nullptr) {
        row_each(r, row, [=](int64_t i, int64_t k) { ys[i] = normal(i) + biases[k]; });
      } else {
        row_each(r, row, [=](int64_t i, int64_t) { ys[i] = normal(i); });
      }
    });
  });
}

// The normalised x, of x.
template <class T>
struct OfX {
  const T* xs;
  T centre;
  T inverse;
  T operator()(int64_t i, int64_t) const { return (xs[i] - centre) * inverse; }
};

// The normalised x, of y.
template <class T>
struct OfY {
  const T* ys;
  const T* scales;
  const T* biases;
  T operator()(int64_t i, int64_t k) const {
    const T scaled = biases != nullptr ? ys[i] - biases[k] : ys[i];
    return scales != nullptr && scales[k] != T{} ? scaled / scales[k] : scaled;
  }
};

// With g = dy scale and h the normalised x: dx = (g - mean(g) - h mean(g h)) / sqrt(variance +
// epsilon).
template <class T>
struct NormGrad {
  NormRows r;
  T epsilon;
  int x, y, scale, bias, mean, variance, grad;
  int x_grad, scale_grad, bias_grad;

  void operator()(const KernelContext& c) const {
    T* sums = reinterpret_cast<T*>(c.scratch().get(static_cast<size_t>(2 * r.width) * sizeof(T)));
    join_rows(
        c.tiles(), r.count, 2 * r.width, kPasses * r.runs * r.length, T{}, sums,
        [&](int64_t begin, int64_t end, T* to) {
          for (int64_t row = begin; row < end; ++row) each(c, row, to, to + r.width);
        },
        add_row<T>);
    if (scale_grad >= 0) std::copy_n(sums, r.width, c.out<T>(scale_grad));
    if (bias_grad >= 0) std::copy_n(sums + r.width, r.width, c.out<T>(bias_grad));
  }

 private:
  // Adds what a row passes back to Scale and Bias.
  void each(const KernelContext& c, int64_t row, T* scale_sums, T* bias_sums) const {
    const T inverse = T{1} / std::sqrt(c.in<T>(variance)[row] + epsilon);
    if (y >= 0) {
      const T* scales = scale >= 0 ? c.in<T>(scale) : nullptr;
      const T* biases = bias >= 0 ? c.in<T>(bias) : nullptr;
      run(c, row, inverse, OfY<T>{c.in<T>(y), scales, biases}, scale_sums, bias_sums);
    } else {
      run(c, row, inverse, OfX<T>{c.in<T>(x), c.in<T>(mean)[row], inverse}, scale_sums, bias_sums);
    }
  }

  template <class Normal>
  void run(const KernelContext& c, int64_t row, T inverse, const Normal& normal, T* scale_sums,
           T* bias_sums) const {
    const T* grads = c.in<T>(grad);
    if (scale_grad >= 0) {
      row_each(r, row, [&](int64_t i, int64_t k) { scale_sums[k] += grads[i] * normal(i, k); });
    }
    if (bias_grad >= 0) {
      row_each(r, row, [&](int64_t i, int64_t k) { bias_sums[k] += grads[i]; });
    }
    if (x_grad >= 0) row_grad(c, row, inverse, normal);
  }

  template <class Normal>
  void row_grad(const KernelContext& c, int64_t row, T inverse, const Normal& normal) const {
    const T* grads = c.in<T>(grad);
    const T* scales = scale >= 0 ? c.in<T>(scale) : nullptr;
    T* outs = c.out<T>(x_grad);
    const T size = static_cast<T>(r.size(row));
    row_each(r, row, [&](int64_t i, int64_t k) {
      outs[i] = scales != nullptr ? grads[i] * scales[k] : grads[i];
    });
    const T mean_grad = row_sum<T>(r, row, [outs](int64_t i, int64_t) { return outs[i]; }) / size;
    const T mean_product =
        row_sum<T>(r, row, [&](int64_t i, int64_t k) { return outs[i] * normal(i, k); }) / size;
    row_each(r, row, [&](int64_t i, int64_t k) {
      outs[i] = inverse * (outs[i] - mean_grad - normal(i, k) * mean_product);
    });
  }
};

template <class T>
std::unique_ptr<Prepared> prepare_norm_grad(PrepareContext& context, const RowNorm& norm) {
  const Shape shape = context.in("Y@GRAD").shape;
  check_norm_vectors(context, norm.rows, dtype_of<T>());
  const bool of_y = context.has_input("Y");
  const char* normal = of_y ? "Y" : "X";
  context.require(context.in(normal).shape == shape, normal, shape.to_string(),
                  context.in(normal).shape.to_string());
  const Shape vector{norm.rows.width};
  return make_prepared(
      NormGrad<T>{.r = norm.rows,
                  .epsilon = static_cast<T>(norm.epsilon),
                  .x = of_y ? -1 : context.input("X"),
                  .y = of_y ? context.input("Y") : -1,
                  .scale = context.input("Scale"),
                  .bias = context.input("Bias"),
                  .mean = of_y ? -1 : context.input("Mean"),
                  .variance = context.input("Variance"),
                  .grad = context.input("Y@GRAD"),
                  .x_grad = context.set_output("X@GRAD", shape, dtype_of<T>()),
                  .scale_grad = context.set_output("Scale@GRAD", vector, dtype_of<T>()),
                  .bias_grad = context.set_output("Bias@GRAD", vector, dtype_of<T>())});
}

template <class T, RowNorm (*norm_of)(const PrepareContext&)>
void add_norm(KernelTable& table, const std::string& op) {
  table.add_last(
      op, DeviceKind::kCpu, dtype_of<T>(),
      {"loop", [](PrepareContext& context) { return prepare_norm<T>(context, norm_of(context)); }});
  table.add_last(op + "_grad", DeviceKind::kCpu, dtype_of<T>(),
                 {"loop", [](PrepareContext& context) {
                    return prepare_norm_grad<T>(context, norm_of(context));
                  }});
}

}  // namespace

void register_row_norm(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    add_norm<T, layer_norm_of>(table, "layer_norm");
    add_norm<T, group_norm_of>(table, "group_norm");
  });
}

}  // namespace fleet::fluid::cpu
