// Normalisation, pooling, dropout, metrics.
#include <algorithm>
#include <string>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/cuda/nn/nn_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/ops/loss/metric.h"
#include "fluid/ops/nn/conv.h"
#include "fluid/ops/nn/dropout.h"
#include "fluid/ops/nn/norm.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
void copy(const KernelContext& c, const T* from, T* to, int64_t n) {
  stream_of(c).copy(from, to, static_cast<size_t>(n) * sizeof(T));
}

template <class T>
std::unique_ptr<Prepared> prepare_row_norm(PrepareContext& context, const RowNorm& norm) {
  check_norm_vectors(context, norm.rows, dtype_of<T>());
  const int x = context.input("X");
  const int scale = context.input("Scale");
  const int bias = context.input("Bias");
  const int y = context.set_output("Y", context.in("X").shape, dtype_of<T>());
  const int mean = context.set_output("Mean", norm.statistics, dtype_of<T>());
  const int variance = context.set_output("Variance", norm.statistics, dtype_of<T>());
  return make_prepared(
      [=, rows = norm.rows, epsilon = static_cast<T>(norm.epsilon)](const KernelContext& c) {
        const RowNormArgs<T> args{.rows = rows,
                                  .epsilon = epsilon,
                                  .scale = in_or_null<T>(c, scale),
                                  .bias = in_or_null<T>(c, bias)};
        row_norm<T>(stream_of(c).raw(), args, c.in<T>(x), c.out<T>(y), c.out<T>(mean),
                    c.out<T>(variance));
      });
}

template <class T>
std::unique_ptr<Prepared> prepare_row_norm_grad(PrepareContext& context, const RowNorm& norm) {
  const Shape shape = context.in("Y@GRAD").shape;
  check_norm_vectors(context, norm.rows, dtype_of<T>());
  const bool of_y = context.has_input("Y");
  const char* normal = of_y ? "Y" : "X";
  context.require(context.in(normal).shape == shape, normal, shape.to_string(),
                  context.in(normal).shape.to_string());
  const Shape vector{norm.rows.width};
  const int x = of_y ? -1 : context.input("X");
  const int y = of_y ? context.input("Y") : -1;
  const int mean = of_y ? -1 : context.input("Mean");
  const int scale = context.input("Scale");
  const int bias = context.input("Bias");
  const int variance = context.input("Variance");
  const int grad = context.input("Y@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int scale_grad = context.set_output("Scale@GRAD", vector, dtype_of<T>());
  const int bias_grad = context.set_output("Bias@GRAD", vector, dtype_of<T>());
  return make_prepared(
      [=, rows = norm.rows, epsilon = static_cast<T>(norm.epsilon)](const KernelContext& c) {
        const RowNormArgs<T> args{.rows = rows,
                                  .epsilon = epsilon,
                                  .scale = in_or_null<T>(c, scale),
                                  .bias = in_or_null<T>(c, bias)};
        const RowNormBack<T> back{.x = in_or_null<T>(c, x),
                                  .y = in_or_null<T>(c, y),
                                  .mean = in_or_null<T>(c, mean),
                                  .variance = c.in<T>(variance),
                                  .grad = c.in<T>(grad),
                                  .x_grad = out_or_null<T>(c, x_grad),
                                  .scale_grad = out_or_null<T>(c, scale_grad),
                                  .bias_grad = out_or_null<T>(c, bias_grad)};
        Stream& stream = stream_of(c);
        row_norm_back<T>(stream.raw(), args, back, stream.scratch<T>(row_norm_partials(rows)));
      });
}

template <class T, RowNorm (*norm_of)(const PrepareContext&)>
void add_row_norm(KernelTable& table, const std::string& op) {
  table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {"loop", [](PrepareContext& context) {
                                                          return prepare_row_norm<T>(
                                                              context, norm_of(context));
                                                        }});
  table.add_last(op + "_grad", DeviceKind::kCuda, dtype_of<T>(),
                 {"loop", [](PrepareContext& context) {
                    return prepare_row_norm_grad<T>(context, norm_of(context));
                  }});
}

ChannelDims channels_of(const PrepareContext& context, const BatchNormAttrs& attrs) {
  const Shape& x = context.in("X").shape;
  const std::string where = str_cat("op '", context.op().type, "', slot 'X', variable '",
                                    context.op().input("X").front(), "'");
  context.require(x.rank() >= 2, "X", "at least two dimensions", x.to_string());
  const int axis = channel_axis(attrs.data_layout, x.rank(), where);
  return {.outer = x.numel(0, axis), .count = x[axis], .inner = x.numel(axis + 1, x.rank())};
}

template <class T>
struct BatchNorm {
  BatchNormAttrs attrs;
  ChannelDims dims;
  int x, scale, bias, mean, variance, momentum;
  int y, mean_out, variance_out, saved_mean, saved_variance;

  void operator()(const KernelContext& c) const {
    Stream& stream = stream_of(c);
    T* now_mean = c.out<T>(saved_mean);
    T* now_variance = c.out<T>(saved_variance);
    const bool global = attrs.global_stats();
    if (!global && dims.each() == 1) return pass_through(c);
    if (global) {
      copy(c, c.in<T>(mean), now_mean, dims.count);
      keep_running(c);
      inverse_deviation<T>(stream.raw(), dims.count, static_cast<T>(attrs.epsilon),
                           c.in<T>(variance), now_variance);
    } else {
      channel_moments<T>(stream.raw(), dims, c.in<T>(x), moments(c, now_mean, now_variance),
                         stream.template scratch<std::byte>(moments_bytes(dims)));
    }
    const ChannelNorm<T> norm{
        .mean = now_mean, .inverse = now_variance, .scale = c.in<T>(scale), .bias = c.in<T>(bias)};
    channel_norm<T>(stream.raw(), dims, norm, c.in<T>(x), c.out<T>(y));
  }

 private:
  ChannelMoments<T> moments(const KernelContext& c, T* now_mean, T* inverse) const {
    return {.mean = now_mean,
            .inverse = inverse,
            .epsilon = static_cast<T>(attrs.epsilon),
            .momentum = attrs.momentum,
            .momentum_tensor = in_or_null<float>(c, momentum),
            .mean_before = c.in<T>(mean),
            .variance_before = c.in<T>(variance),
            .mean_out = out_or_null<T>(c, mean_out),
            .variance_out = out_or_null<T>(c, variance_out)};
  }
  void keep_running(const KernelContext& c) const {
    if (mean_out >= 0) copy(c, c.in<T>(mean), c.out<T>(mean_out), dims.count);
    if (variance_out >= 0) copy(c, c.in<T>(variance), c.out<T>(variance_out), dims.count);
  }
  // One element a channel has no variance.
  void pass_through(const KernelContext& c) const {
    copy(c, c.in<T>(x), c.out<T>(y), dims.numel());
    fill<T>(stream_of(c).raw(), T{}, c.out<T>(saved_mean), dims.count);
    fill<T>(stream_of(c).raw(), T{}, c.out<T>(saved_variance), dims.count);
    keep_running(c);
  }
};

template <class T>
std::unique_ptr<Prepared> prepare_batch_norm(PrepareContext& context) {
  const auto attrs = context.attrs<BatchNormAttrs>();
  const ChannelDims dims = channels_of(context, attrs);
  for (const char* slot : {"Scale", "Bias", "Mean", "Variance"}) {
    const ValueSpec& spec = context.in(slot);
    context.require(spec.dtype == dtype_of<T>() && spec.shape.numel() == dims.count, slot,
                    str_cat(dtype_name(dtype_of<T>()), "[", dims.count, "]"),
                    str_cat(dtype_name(spec.dtype), spec.shape));
  }
  const Shape vector{dims.count};
  return make_prepared(
      BatchNorm<T>{.attrs = attrs,
                   .dims = dims,
                   .x = context.input("X"),
                   .scale = context.input("Scale"),
                   .bias = context.input("Bias"),
                   .mean = context.input("Mean"),
                   .variance = context.input("Variance"),
                   .momentum = context.input("MomentumTensor"),
                   .y = context.set_output("Y", context.in("X").shape, dtype_of<T>()),
                   .mean_out = context.set_output("MeanOut", vector, dtype_of<T>()),
                   .variance_out = context.set_output("VarianceOut", vector, dtype_of<T>()),
                   .saved_mean = context.set_output("SavedMean", vector, dtype_of<T>()),
                   .saved_variance = context.set_output("SavedVariance", vector, dtype_of<T>())});
}

template <class T>
std::unique_ptr<Prepared> prepare_batch_norm_grad(PrepareContext& context) {
  const auto attrs = context.attrs<BatchNormAttrs>();
  const ChannelDims dims = channels_of(context, attrs);
  context.require(!attrs.is_test || attrs.use_global_stats || attrs.trainable_statistics, "X",
                  "batch_norm with is_test off, or use_global_stats, for a gradient", "is_test");
  const Shape& shape = context.in("X").shape;
  context.require(context.in("Y@GRAD").shape == shape, "Y@GRAD", shape.to_string(),
                  context.in("Y@GRAD").shape.to_string());
  const bool global = attrs.global_stats();
  const Shape vector{dims.count};
  const int x = context.input("X");
  const int scale = context.input("Scale");
  const int mean = context.input(global ? "Mean" : "SavedMean");
  const int variance = context.input(global ? "Variance" : "SavedVariance");
  const int grad = context.input("Y@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int scale_grad = context.set_output("Scale@GRAD", vector, dtype_of<T>());
  const int bias_grad = context.set_output("Bias@GRAD", vector, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    if (!global && dims.each() == 1) {
      if (x_grad >= 0) copy(c, c.in<T>(grad), c.out<T>(x_grad), dims.numel());
      if (scale_grad >= 0) fill<T>(stream.raw(), T{}, c.out<T>(scale_grad), dims.count);
      if (bias_grad >= 0) fill<T>(stream.raw(), T{}, c.out<T>(bias_grad), dims.count);
      return;
    }
    T* memory = stream.template scratch<T>(3 * dims.count + 2 * channel_partials(dims));
    T* inverse = memory + 2 * dims.count;
    if (global) {
      inverse_deviation<T>(stream.raw(), dims.count, static_cast<T>(attrs.epsilon),
                           c.in<T>(variance), inverse);
    }
    const ChannelNormBack<T> back{.x = c.in<T>(x),
                                  .grad = c.in<T>(grad),
                                  .mean = c.in<T>(mean),
                                  .inverse = global ? inverse : c.in<T>(variance),
                                  .scale = c.in<T>(scale),
                                  .fixed = global,
                                  .x_grad = out_or_null<T>(c, x_grad),
                                  .scale_grad = out_or_null<T>(c, scale_grad),
                                  .bias_grad = out_or_null<T>(c, bias_grad)};
    channel_norm_back<T>(stream.raw(), dims, back, inverse + dims.count, memory);
  });
}

struct Pooling {
  PoolDims dims;
  Shape out;
  bool max = false;
};

Pooling pooling_of(const PrepareContext& context) {
  const auto attrs = context.attrs<Pool2dAttrs>();
  const PoolWindows windows = pool_windows(context, attrs);
  return {.dims = {.rows = windows.window[0],
                   .columns = windows.window[1],
                   .adaptive = windows.adaptive,
                   .exclusive = windows.exclusive,
                   .planes = windows.planes,
                   .lanes = windows.lanes},
          .out = windows.out,
          .max = attrs.pooling_type == "max"};
}

template <class T>
std::unique_ptr<Prepared> prepare_pool(PrepareContext& context) {
  const Pooling p = pooling_of(context);
  const int x = context.input("X");
  const int out = context.set_output("Out", p.out, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    pool<T>(stream_of(c).raw(), p.dims, p.max, c.in<T>(x), c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_pool_grad(PrepareContext& context) {
  const Pooling p = pooling_of(context);
  for (const char* slot : {"Out@GRAD", "Out"}) {
    context.require(context.in(slot).shape == p.out, slot, p.out.to_string(),
                    context.in(slot).shape.to_string());
  }
  const int x = context.input("X");
  const int out = context.input("Out");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    pool_back<T>(stream_of(c).raw(), p.dims, p.max, c.in<T>(x), c.in<T>(out), c.in<T>(grad),
                 c.out<T>(x_grad));
  });
}

// What an element that stays is multiplied by.
template <class T>
T dropout_factor(const DropoutAttrs& attrs) {
  const T keep = T{1} - static_cast<T>(attrs.dropout_prob);
  if (attrs.is_test) return attrs.upscales() ? T{1} : keep;
  if (!attrs.upscales()) return T{1};
  return keep > T{} ? T{1} / keep : T{};
}

template <class T>
std::unique_ptr<Prepared> prepare_dropout(PrepareContext& context) {
  const auto attrs = context.attrs<DropoutAttrs>();
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const auto& masks = context.op().output("Mask");
  const bool has_mask = !masks.empty() && !masks.front().empty();
  const std::string name = has_mask ? masks.front() : context.op().output("Out").front();
  const uint64_t program = context.block().program().random_seed();
  const RandomKey key =
      RandomKey::of(attrs.fix_seed ? static_cast<uint64_t>(attrs.seed) : program, name);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const int mask = context.set_output("Mask", shape, DType::kUInt8);
  const T factor = dropout_factor<T>(attrs);
  const auto threshold =
      static_cast<uint64_t>(static_cast<double>(attrs.dropout_prob) * 4294967296.0);
  return make_prepared([=, is_test = attrs.is_test](const KernelContext& c) {
    const RawStream stream = stream_of(c).raw();
    if (is_test) {
      scale<T>(stream, {.scale = factor}, c.in<T>(x), c.out<T>(out), n);
      if (mask >= 0) fill<uint8_t>(stream, 1, c.out<uint8_t>(mask), n);
      return;
    }
    const DropoutArgs args{.key = key,
                           .step = c.step(),
                           .step_memory = stream_of(c).recorded_step(),
                           .shard = static_cast<uint64_t>(std::max(c.shard(), 0)),
                           .threshold = threshold};
    dropout<T>(stream, args, factor, c.in<T>(x), out_or_null<uint8_t>(c, mask), c.out<T>(out), n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_dropout_grad(PrepareContext& context) {
  const Shape shape = context.in("Out@GRAD").shape;
  const int64_t n = shape.numel();
  context.require(context.in("Mask").shape.numel() == n, "Mask", shape.to_string(),
                  context.in("Mask").shape.to_string());
  const int mask = context.input("Mask");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  const T factor = dropout_factor<T>(context.attrs<DropoutAttrs>());
  return make_prepared([=](const KernelContext& c) {
    keep_masked<T>(stream_of(c).raw(), c.in<uint8_t>(mask), factor, c.in<T>(grad), c.out<T>(out),
                   n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_top_k(PrepareContext& context) {
  const Shape& x_shape = context.in("X").shape;
  const int64_t n = x_shape[-1];
  const int64_t k = context.attrs<TopKAttrs>().k;
  context.require(k >= 1 && k <= n, "X", str_cat("at least ", k, " columns"), str_cat(x_shape));
  Shape shape = x_shape;
  shape.set(-1, k);
  const int64_t rows = x_shape.numel(0, x_shape.rank() - 1);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const int indices = context.set_output("Indices", shape, DType::kInt64);
  return make_prepared([=](const KernelContext& c) {
    top_k<T>(stream_of(c).raw(), rows, n, k, c.in<T>(x), out_or_null<T>(c, out),
             out_or_null<int64_t>(c, indices));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_top_k_grad(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const Shape& taken = context.in("Indices").shape;
  const int64_t n = shape[-1];
  const int64_t k = taken[-1];
  const int64_t rows = shape.numel(0, shape.rank() - 1);
  context.require(taken.numel() == rows * k && context.in("Out@GRAD").shape.numel() == rows * k,
                  "Indices", str_cat(rows, " rows"), taken.to_string());
  const int indices = context.input("Indices");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    top_k_back<T>(stream_of(c).raw(), rows, n, k, c.in<int64_t>(indices), c.in<T>(grad),
                  c.out<T>(out));
  });
}

std::unique_ptr<Prepared> prepare_accuracy(PrepareContext& context) {
  const Shape& shape = context.in("Indices").shape;
  const int64_t rows = shape[0];
  const int64_t k = shape.numel(1, shape.rank());
  const ValueSpec& labels = context.in("Label");
  context.require(labels.dtype == DType::kInt64 && labels.shape.numel() == rows, "Label",
                  str_cat("int64 [", rows, ", 1]"),
                  str_cat(dtype_name(labels.dtype), labels.shape));
  const int indices = context.input("Indices");
  const int label = context.input("Label");
  const int share = context.set_output("Accuracy", Shape{1}, DType::kFloat32);
  const int correct = context.set_output("Correct", Shape{1}, DType::kInt32);
  const int total = context.set_output("Total", Shape{1}, DType::kInt32);
  return make_prepared([=](const KernelContext& c) {
    accuracy(stream_of(c).raw(), rows, k, c.in<int64_t>(indices), c.in<int64_t>(label),
             out_or_null<float>(c, share), out_or_null<int32_t>(c, correct),
             out_or_null<int32_t>(c, total));
  });
}

}  // namespace

void register_nn(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add_row_norm<T, layer_norm_of>(table, "layer_norm");
    add_row_norm<T, group_norm_of>(table, "group_norm");
    list("batch_norm", prepare_batch_norm<T>);
    list("batch_norm_grad", prepare_batch_norm_grad<T>);
    list("pool2d", prepare_pool<T>);
    list("pool2d_grad", prepare_pool_grad<T>);
    list("dropout", prepare_dropout<T>);
    list("dropout_grad", prepare_dropout_grad<T>);
    list("top_k_grad", prepare_top_k_grad<T>);
  });
  cpu::for_types<float, double, int32_t, int64_t>([&table]<class T>(std::type_identity<T>) {
    table.add_last("top_k", DeviceKind::kCuda, dtype_of<T>(), {"loop", prepare_top_k<T>});
  });
  table.add_last("accuracy", DeviceKind::kCuda, DType::kFloat32, {"loop", prepare_accuracy});
}

}  // namespace fleet::fluid::cuda
