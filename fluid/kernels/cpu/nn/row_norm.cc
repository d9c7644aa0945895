// layer_norm and group_norm: what is normalised is a row of A runs of B elements.
#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "fluid/kernels/cpu/nn/lanes.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/ops/nn/norm.h"

namespace fleet::fluid::cpu {
namespace {

struct Rows {
  int64_t count = 0;
  int64_t runs = 1;
  int64_t length = 0;            // of a run
  int64_t run_stride = 0;        // elements from run to run
  int64_t groups = 1;            // rows of one image
  int64_t image = 0;             // elements from image to image
  int64_t group = 0;             // elements from row to row of an image
  int64_t width = 0;             // elements of Scale and Bias
  int64_t channels = 0;          // of a group
  bool channel_per_run = false;  // otherwise one per element of a run

  int64_t size() const { return runs * length; }
  int64_t start(int64_t row) const { return row / groups * image + row % groups * group; }
  // First element of Scale for a run.
  int64_t channel(int64_t row, int64_t run) const {
    return row % groups * channels + (channel_per_run ? run : 0);
  }
};

Rows layer_rows(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const int axis = context.attrs<LayerNormAttrs>().begin_norm_axis;
  context.require(axis >= 1 && axis < x.rank(), "X", "begin_norm_axis inside of the rank",
                  str_cat(axis, " of ", x));
  const int64_t columns = x.numel(axis, x.rank());
  return {.count = x.numel(0, axis), .length = columns, .image = columns, .width = columns};
}

Rows group_rows(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const auto attrs = context.attrs<GroupNormAttrs>();
  const std::string where = str_cat("op '", context.op().type, "', slot 'X'");
  context.require(x.rank() >= 2, "X", "at least two dimensions", x.to_string());
  const int axis = channel_axis(attrs.data_layout, x.rank(), where);
  const int64_t all = x[axis];
  context.require(attrs.groups >= 1 && all % attrs.groups == 0, "X",
                  str_cat("channels that ", attrs.groups, " groups divide"), x.to_string());
  const bool last = axis == x.rank() - 1 && axis != 1;
  const int64_t channels = all / attrs.groups;
  const int64_t inner = x.numel(1, x.rank()) / std::max<int64_t>(all, 1);
  Rows rows{.count = x[0] * attrs.groups,
            .groups = attrs.groups,
            .image = inner * all,
            .width = all,
            .channels = channels,
            .channel_per_run = !last};
  rows.runs = last ? inner : channels;
  rows.length = last ? channels : inner;
  rows.run_stride = last ? all : inner;
  rows.group = last ? channels : channels * inner;
  return rows;
}

// The sum of value(position in x, position in Scale) over a row.
template <class T, class F>
T row_sum(const Rows& r, int64_t row, F value) {
  LaneSum<T> sum;
  for (int64_t run = 0; run < r.runs; ++run) {
    const int64_t base = r.start(row) + run * r.run_stride;
    const int64_t channel = r.channel(row, run);
    if (r.channel_per_run) {
      sum.add(r.length, [&](int64_t i) { return value(base + i, channel); });
    } else {
      sum.add(r.length, [&](int64_t i) { return value(base + i, channel + i); });
    }
  }
  return sum.total();
}

template <class F>
void row_each(const Rows& r, int64_t row, F f) {
  for (int64_t run = 0; run < r.runs; ++run) {
    const int64_t base = r.start(row) + run * r.run_stride;
    const int64_t channel = r.channel(row, run);
    if (r.channel_per_run) {
      for (int64_t i = 0; i < r.length; ++i) f(base + i, channel);
    } else {
      for (int64_t i = 0; i < r.length; ++i) f(base + i, channel + i);
    }
  }
}

template <class T>
void check_vectors(const PrepareContext& context, const Rows& rows) {
  for (const char* slot : {"Scale", "Bias"}) {
    if (!context.has_input(slot)) continue;
    const ValueSpec& spec = context.in(slot);
    context.require(spec.dtype == dtype_of<T>() && spec.shape.numel() == rows.width, slot,
                    str_cat(dtype_name(dtype_of<T>()), "[", rows.width, "]"),
                    str_cat(dtype_name(spec.dtype), spec.shape));
  }
}

struct Norm {
  Rows rows;
  Shape statistics;  // of Mean and Variance
  float epsilon = 0;
};

template <class T>
std::unique_ptr<Prepared> prepare_norm(PrepareContext& context, const Norm& norm) {
  const Rows r = norm.rows;
  check_vectors<T>(context, r);
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
    const T size = static_cast<T>(r.size());
    for (int64_t row = 0; row < r.count; ++row) {
      const T centre = row_sum<T>(r, row, [xs](int64_t i, int64_t) { return xs[i]; }) / size;
      const T spread = row_sum<T>(r, row,
                                  [xs, centre](int64_t i, int64_t) {
                                    return (xs[i] - centre) * (xs[i] - centre);
                                  }) /
                       size;
      c.out<T>(mean)[row] = centre;
      c.out<T>(variance)[row] = spread;
      const T inverse = T{1} / std::sqrt(spread + epsilon);
      row_each(r, row, [&](int64_t i, int64_t) { ys[i] = (xs[i] - centre) * inverse; });
      if (scales != nullptr) row_each(r, row, [&](int64_t i, int64_t k) { ys[i] *= scales[k]; });
      if (biases != nullptr) row_each(r, row, [&](int64_t i, int64_t k) { ys[i] += biases[k]; });
    }
  });
}

// With g = dy scale and h the normalised x: dx = (g - mean(g) - h mean(g h)) / sqrt(variance +
// epsilon).
template <class T>
struct NormGrad {
  Rows r;
  T epsilon;
  int x, scale, mean, variance, grad;
  int x_grad, scale_grad, bias_grad;

  void operator()(const KernelContext& c) const {
    T* scale_grads = zeros(c, scale_grad);
    T* bias_grads = zeros(c, bias_grad);
    for (int64_t row = 0; row < r.count; ++row) {
      const T centre = c.in<T>(mean)[row];
      const T inverse = T{1} / std::sqrt(c.in<T>(variance)[row] + epsilon);
      const T* xs = c.in<T>(x);
      const T* grads = c.in<T>(grad);
      if (scale_grads != nullptr) {
        row_each(r, row, [&](int64_t i, int64_t k) {
          scale_grads[k] += grads[i] * ((xs[i] - centre) * inverse);
        });
      }
      if (bias_grads != nullptr) {
        row_each(r, row, [&](int64_t i, int64_t k) { bias_grads[k] += grads[i]; });
      }
      if (x_grad >= 0) row_grad(c, row, centre, inverse);
    }
  }

 private:
  T* zeros(const KernelContext& c, int out) const {
    if (out < 0) return nullptr;
    T* values = c.out<T>(out);
    std::fill_n(values, r.width, T{});
    return values;
  }

  void row_grad(const KernelContext& c, int64_t row, T centre, T inverse) const {
    const T* xs = c.in<T>(x);
    const T* grads = c.in<T>(grad);
    const T* scales = scale >= 0 ? c.in<T>(scale) : nullptr;
    T* outs = c.out<T>(x_grad);
    const T size = static_cast<T>(r.size());
    row_each(r, row, [&](int64_t i, int64_t k) {
      outs[i] = scales != nullptr ? grads[i] * scales[k] : grads[i];
    });
    const T mean_grad = row_sum<T>(r, row, [outs](int64_t i, int64_t) { return outs[i]; }) / size;
    const T mean_product =
        row_sum<T>(r, row,
                   [&](int64_t i, int64_t) { return outs[i] * ((xs[i] - centre) * inverse); }) /
        size;
    row_each(r, row, [&](int64_t i, int64_t) {
      outs[i] = inverse * (outs[i] - mean_grad - (xs[i] - centre) * inverse * mean_product);
    });
  }
};

template <class T>
std::unique_ptr<Prepared> prepare_norm_grad(PrepareContext& context, const Norm& norm) {
  const Shape shape = context.in("X").shape;
  check_vectors<T>(context, norm.rows);
  context.require(context.in("Y@GRAD").shape == shape, "Y@GRAD", shape.to_string(),
                  context.in("Y@GRAD").shape.to_string());
  const Shape vector{norm.rows.width};
  return make_prepared(
      NormGrad<T>{.r = norm.rows,
                  .epsilon = static_cast<T>(norm.epsilon),
                  .x = context.input("X"),
                  .scale = context.input("Scale"),
                  .mean = context.input("Mean"),
                  .variance = context.input("Variance"),
                  .grad = context.input("Y@GRAD"),
                  .x_grad = context.set_output("X@GRAD", shape, dtype_of<T>()),
                  .scale_grad = context.set_output("Scale@GRAD", vector, dtype_of<T>()),
                  .bias_grad = context.set_output("Bias@GRAD", vector, dtype_of<T>())});
}

Norm layer_norm_of(const PrepareContext& context) {
  const Rows rows = layer_rows(context);
  return {rows, Shape{rows.count}, context.attrs<LayerNormAttrs>().epsilon};
}

Norm group_norm_of(const PrepareContext& context) {
  const Rows rows = group_rows(context);
  return {rows, Shape{rows.count / rows.groups, rows.groups},
          context.attrs<GroupNormAttrs>().epsilon};
}

template <class T, Norm (*norm_of)(const PrepareContext&)>
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
