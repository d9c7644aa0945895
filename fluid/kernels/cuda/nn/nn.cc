// Normalisation, pooling, dropout, metrics.
#include <algorithm>
#include <string>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/cuda/nn/nn_loops_impl.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/half/widened.h"
#include "fluid/kernels/loss/metrics.h"
#include "fluid/kernels/nn/batch_norm.h"
#include "fluid/ops/nn/conv.h"
#include "fluid/ops/nn/dropout.h"

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

// Images of type X; halves have vectors of float32.
template <class X>
struct BatchNorm {
  using T = Computed<X>;

  BatchNormSlots at;
  Channels channels = at.channels;

  void operator()(const KernelContext& c) const {
    Stream& stream = stream_of(c);
    T* now_mean = c.out<T>(at.saved_mean);
    T* now_variance = c.out<T>(at.saved_variance);
    const bool global = at.attrs.global_stats();
    if (!global && channels.each() == 1) return pass_through(c);
    if (global) {
      copy(c, c.in<T>(at.mean), now_mean, channels.count);
      keep_running(c);
      inverse_deviation<T>(stream.raw(), channels.count, static_cast<T>(at.attrs.epsilon),
                           c.in<T>(at.variance), now_variance);
    } else {
      channel_moments<X, T>(stream.raw(), channels, c.in<X>(at.x),
                            moments(c, now_mean, now_variance),
                            stream.template scratch<std::byte>(moments_bytes(channels)));
    }
    const ChannelNorm<T> norm{.mean = now_mean,
                              .inverse = now_variance,
                              .scale = c.in<T>(at.scale),
                              .bias = c.in<T>(at.bias)};
    channel_norm<X, T>(stream.raw(), channels, norm, c.in<X>(at.x), c.out<X>(at.y));
  }

 private:
  ChannelMoments<T> moments(const KernelContext& c, T* now_mean, T* inverse) const {
    return {.mean = now_mean,
            .inverse = inverse,
            .epsilon = static_cast<T>(at.attrs.epsilon),
            .momentum = at.attrs.momentum,
            .momentum_tensor = in_or_null<float>(c, at.momentum),
            .mean_before = c.in<T>(at.mean),
            .variance_before = c.in<T>(at.variance),
            .mean_out = out_or_null<T>(c, at.mean_out),
            .variance_out = out_or_null<T>(c, at.variance_out)};
  }
  void keep_running(const KernelContext& c) const {
    if (at.mean_out >= 0) copy(c, c.in<T>(at.mean), c.out<T>(at.mean_out), channels.count);
    if (at.variance_out < 0) return;
    copy(c, c.in<T>(at.variance), c.out<T>(at.variance_out), channels.count);
  }
  // One element a channel has no variance.
  void pass_through(const KernelContext& c) const {
    copy(c, c.in<X>(at.x), c.out<X>(at.y), channels.numel());
    fill<T>(stream_of(c).raw(), T{}, c.out<T>(at.saved_mean), channels.count);
    fill<T>(stream_of(c).raw(), T{}, c.out<T>(at.saved_variance), channels.count);
    keep_running(c);
  }
};

template <class X>
std::unique_ptr<Prepared> prepare_batch_norm(PrepareContext& context) {
  constexpr DType kVectors = element_type<Computed<X>>();
  if (Half<X> && context.in("Scale").dtype != kVectors) return nullptr;
  return make_prepared(BatchNorm<X>{batch_norm_of(context, element_type<X>(), kVectors)});
}

template <class X>
std::unique_ptr<Prepared> prepare_batch_norm_grad(PrepareContext& context) {
  using T = Computed<X>;
  if (Half<X> && context.in("Scale").dtype != element_type<T>()) return nullptr;
  const BatchNormBackSlots at = batch_norm_back_of(context, element_type<X>(), element_type<T>());
  const Channels channels = at.channels;
  const bool global = at.attrs.global_stats();
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    T* scale_grad = out_or_null<T>(c, at.scale_grad);
    T* bias_grad = out_or_null<T>(c, at.bias_grad);
    if (!global && channels.each() == 1) {
      if (at.x_grad >= 0) copy(c, c.in<X>(at.grad), c.out<X>(at.x_grad), channels.numel());
      if (scale_grad != nullptr) fill<T>(stream.raw(), T{}, scale_grad, channels.count);
      if (bias_grad != nullptr) fill<T>(stream.raw(), T{}, bias_grad, channels.count);
      return;
    }
    T* memory = stream.template scratch<T>(3 * channels.count + 2 * channel_partials(channels));
    T* inverse = memory + 2 * channels.count;
    if (global) {
      inverse_deviation<T>(stream.raw(), channels.count, static_cast<T>(at.attrs.epsilon),
                           c.in<T>(at.variance), inverse);
    }
    const ChannelNormBack<X, T> back{.x = c.in<X>(at.x),
                                     .grad = c.in<X>(at.grad),
                                     .mean = c.in<T>(at.mean),
                                     .inverse = global ? inverse : c.in<T>(at.variance),
                                     .scale = c.in<T>(at.scale),
                                     .fixed = global,
                                     .x_grad = out_or_null<X>(c, at.x_grad),
                                     .scale_grad = scale_grad,
                                     .bias_grad = bias_grad};
    channel_norm_back<X, T>(stream.raw(), channels, back, inverse + channels.count, memory);
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
  const int out = context.set_output("Out", p.out, element_type<T>());
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
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, element_type<T>());
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
  if (Half<T> && attrs.is_test) return nullptr;
  const Shape shape = context.in("X").shape;
  const int64_t n = shape.numel();
  const auto& masks = context.op().output("Mask");
  const bool has_mask = !masks.empty() && !masks.front().empty();
  const std::string name = has_mask ? masks.front() : context.op().output("Out").front();
  const uint64_t program = context.block().program().random_seed();
  const RandomKey key =
      RandomKey::of(attrs.fix_seed ? static_cast<uint64_t>(attrs.seed) : program, name);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, element_type<T>());
  const int mask = context.set_output("Mask", shape, DType::kUInt8);
  const auto factor = dropout_factor<Computed<T>>(attrs);
  const auto threshold =
      static_cast<uint64_t>(static_cast<double>(attrs.dropout_prob) * 4294967296.0);
  return make_prepared([=, is_test = attrs.is_test](const KernelContext& c) {
    const RawStream stream = stream_of(c).raw();
    if constexpr (!Half<T>) {
      if (is_test) {
        scale<T>(stream, {.scale = factor}, c.in<T>(x), c.out<T>(out), n);
        if (mask >= 0) fill<uint8_t>(stream, 1, c.out<uint8_t>(mask), n);
        return;
      }
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
  const int out = context.set_output("X@GRAD", shape, element_type<T>());
  const auto factor = dropout_factor<Computed<T>>(context.attrs<DropoutAttrs>());
  return make_prepared([=](const KernelContext& c) {
    keep_masked<T>(stream_of(c).raw(), c.in<uint8_t>(mask), factor, c.in<T>(grad), c.out<T>(out),
                   n);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_top_k(PrepareContext& context) {
  const TopK t = top_k_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    top_k<T>(stream_of(c).raw(), t.rows, t.n, t.k, c.in<T>(t.x), out_or_null<T>(c, t.out),
             out_or_null<int64_t>(c, t.indices));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_top_k_grad(PrepareContext& context) {
  const TopK t = top_k_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    top_k_back<T>(stream_of(c).raw(), t.rows, t.n, t.k, c.in<int64_t>(t.indices), c.in<T>(t.grad),
                  c.out<T>(t.out));
  });
}

std::unique_ptr<Prepared> prepare_accuracy(PrepareContext& context) {
  const Accuracy a = accuracy_of(context);
  return make_prepared([=](const KernelContext& c) {
    accuracy(stream_of(c).raw(), a.rows, a.k, c.in<int64_t>(a.indices), c.in<int64_t>(a.label),
             out_or_null<float>(c, a.share), out_or_null<int32_t>(c, a.correct),
             out_or_null<int32_t>(c, a.total));
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
  cpu::for_types<__half, __nv_bfloat16>([&table]<class X>(std::type_identity<X>) {
    const auto list = [&table](const char* op, auto prepare, auto of_floats) {
      add_half(table, op, DeviceKind::kCuda, element_type<X>(),
               {.name = "loop", .prepare = prepare}, {.name = "loop", .prepare = of_floats});
    };
    list("batch_norm", prepare_batch_norm<X>, prepare_batch_norm<float>);
    list("batch_norm_grad", prepare_batch_norm_grad<X>, prepare_batch_norm_grad<float>);
    list("pool2d", prepare_pool<X>, prepare_pool<float>);
    list("pool2d_grad", prepare_pool_grad<X>, prepare_pool_grad<float>);
    list("dropout", prepare_dropout<X>, prepare_dropout<float>);
    list("dropout_grad", prepare_dropout_grad<X>, prepare_dropout_grad<float>);
  });
  cpu::for_types<float, double, int32_t, int64_t>([&table]<class T>(std::type_identity<T>) {
    table.add_last("top_k", DeviceKind::kCuda, dtype_of<T>(), {"loop", prepare_top_k<T>});
  });
  table.add_last("accuracy", DeviceKind::kCuda, DType::kFloat32, {"loop", prepare_accuracy});
}

}  // namespace fleet::fluid::cuda
