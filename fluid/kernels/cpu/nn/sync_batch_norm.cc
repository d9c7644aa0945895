#include "fluid/ops/nn/sync_batch_norm.h"

#include <cmath>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/nn/channels.h"
#include "fluid/kernels/cpu/nn/register_nn.h"

namespace fleet::fluid::cpu {
namespace {

// Every channel of x, in whichever layout it lies; f gets an element's position and its channel.
class AllChannels {
 public:
  AllChannels(const PrepareContext& context, const BatchNormAttrs& attrs)
      : v_(channels_of(context, attrs)), blocked_(context.in("X").layout == Layout::kBlocked) {}

  int64_t count() const { return v_.count; }
  int64_t each() const { return v_.each(); }

  // sums[k] = the sum of f over channel k, in double.
  template <class F>
  void sum(const Tiles& tiles, double* sums, F f) const {
    if (blocked_ && image_block() == 16) return sum_blocks<16>(tiles, sums, f);
    if (blocked_) return sum_blocks<8>(tiles, sums, f);
    if (v_.inner == 1) return channel_sums(v_, tiles, sums, f);
    each_channel(v_, tiles, 1, [&](int64_t k) {
      sums[k] = channel_sum<double>(v_, k, [f, k](int64_t i) { return f(i, k); });
    });
  }
  // out[i] = f of every element.
  template <class T, class F>
  void each_of(const Tiles& tiles, T* out, F f) const {
    if (blocked_ && image_block() == 16) return each_block<16>(tiles, out, f);
    if (blocked_) return each_block<8>(tiles, out, f);
    if (v_.inner == 1) return each_element(v_, tiles, out, f);
    each_channel(v_, tiles, 1,
                 [&](int64_t k) { channel_each(v_, k, [=](int64_t i) { out[i] = f(i, k); }); });
  }

 private:
  template <int64_t Block, class F>
  void sum_blocks(const Tiles& tiles, double* sums, F f) const {
    const auto one = [&](int64_t block) {
      const int64_t first = block * Block;
      block_sums<Block>(v_, block, sums + first,
                        [f, first](int64_t i, int64_t c) { return f(i, first + c); });
    };
    each_channel(v_, tiles, 1, one, Block);
  }
  template <int64_t Block, class T, class F>
  void each_block(const Tiles& tiles, T* out, F f) const {
    const auto one = [&](int64_t block) {
      const int64_t first = block * Block;
      block_each<Block>(v_, block, out,
                        [f, first](int64_t i, int64_t c) { return f(i, first + c); });
    };
    each_channel(v_, tiles, 1, one, Block);
  }

  Channels v_;
  bool blocked_;
};

Shape sums_of(const AllChannels& channels) {
  return Shape{1 + 2 * channels.count()};
}

void require_sums(const PrepareContext& context, const AllChannels& channels) {
  const ValueSpec& sums = context.in("Sums");
  context.require(sums.dtype == DType::kFloat64 && sums.shape == sums_of(channels), "Sums",
                  str_cat("float64", sums_of(channels)),
                  str_cat(dtype_name(sums.dtype), sums.shape));
}

template <class T>
class Sums {
 public:
  Sums(PrepareContext& context, const BatchNormAttrs& attrs)
      : channels_(context, attrs),
        x_(context.input("X")),
        sums_(context.set_output("Sums", sums_of(channels_), DType::kFloat64)) {}

  void operator()(const KernelContext& c) const {
    const T* x = c.in<T>(x_);
    double* sums = c.out<double>(sums_);
    sums[0] = static_cast<double>(channels_.each());
    channels_.sum(c.tiles(), sums + 1,
                  [x](int64_t i, int64_t) { return static_cast<double>(x[i]); });
    channels_.sum(c.tiles(), sums + 1 + channels_.count(), [x](int64_t i, int64_t) {
      return static_cast<double>(x[i]) * static_cast<double>(x[i]);
    });
  }

 private:
  AllChannels channels_;
  int x_;
  int sums_;
};

template <class T>
class NormOfStep {
 public:
  NormOfStep(PrepareContext& context, const BatchNormAttrs& attrs)
      : attrs_(attrs), channels_(context, attrs), factor_(static_cast<size_t>(channels_.count())) {
    require_sums(context, channels_);
    const Shape vector{channels_.count()};
    x_ = context.input("X");
    scale_ = context.input("Scale");
    bias_ = context.input("Bias");
    mean_ = context.input("Mean");
    variance_ = context.input("Variance");
    momentum_ = context.input("MomentumTensor");
    sums_ = context.input("Sums");
    y_ = context.set_output("Y", context.in("X").shape, dtype_of<T>());
    mean_out_ = context.set_output("MeanOut", vector, dtype_of<T>());
    variance_out_ = context.set_output("VarianceOut", vector, dtype_of<T>());
    saved_mean_ = context.set_output("SavedMean", vector, dtype_of<T>());
    saved_variance_ = context.set_output("SavedVariance", vector, dtype_of<T>());
  }

  void operator()(const KernelContext& c) {
    const T* x = c.in<T>(x_);
    T* mean = c.out<T>(saved_mean_);
    T* inverse = c.out<T>(saved_variance_);
    if (!attrs_.global_stats() && c.in<double>(sums_)[0] <= 1) {
      // One value a channel: passed through, as batch_norm does.
      channels_.each_of(c.tiles(), c.out<T>(y_), [x](int64_t i, int64_t) { return x[i]; });
      std::fill_n(mean, channels_.count(), T{});
      std::fill_n(inverse, channels_.count(), T{});
      return keep_running(c);
    }
    for (int64_t k = 0; k < channels_.count(); ++k) take_statistics(c, k, mean[k], inverse[k]);
    attrs_.global_stats() ? keep_running(c) : move_running(c, mean, inverse);
    for (int64_t k = 0; k < channels_.count(); ++k) {
      inverse[k] = T{1} / std::sqrt(inverse[k] + static_cast<T>(attrs_.epsilon));
      factor_[static_cast<size_t>(k)] = inverse[k] * c.in<T>(scale_)[k];
    }
    const T* bias = c.in<T>(bias_);
    channels_.each_of(c.tiles(), c.out<T>(y_),
                      [x, mean, bias, factor = factor_.data()](int64_t i, int64_t k) {
                        return (x[i] - mean[k]) * factor[k] + bias[k];
                      });
  }

 private:
  void take_statistics(const KernelContext& c, int64_t k, T& mean, T& variance) const {
    if (attrs_.global_stats()) {
      mean = c.in<T>(mean_)[k];
      variance = c.in<T>(variance_)[k];
      return;
    }
    const double* sums = c.in<double>(sums_);
    const double centre = sums[1 + k] / sums[0];
    mean = static_cast<T>(centre);
    variance =
        static_cast<T>(std::max(0.0, sums[1 + channels_.count() + k] / sums[0] - centre * centre));
  }
  void keep_running(const KernelContext& c) const {
    const auto keep = [&](int in, int out) {
      if (c.in<T>(in) != c.out<T>(out)) std::copy_n(c.in<T>(in), channels_.count(), c.out<T>(out));
    };
    keep(mean_, mean_out_);
    keep(variance_, variance_out_);
  }
  void move_running(const KernelContext& c, const T* mean, const T* variance) const {
    const T momentum =
        momentum_ >= 0 ? static_cast<T>(*c.in<float>(momentum_)) : static_cast<T>(attrs_.momentum);
    const auto move = [&](int in, int out, const T* now) {
      for (int64_t k = 0; k < channels_.count(); ++k) {
        c.out<T>(out)[k] = momentum * c.in<T>(in)[k] + (T{1} - momentum) * now[k];
      }
    };
    move(mean_, mean_out_, mean);
    move(variance_, variance_out_, variance);
  }

  BatchNormAttrs attrs_;
  AllChannels channels_;
  std::vector<T> factor_;
  int x_, scale_, bias_, mean_, variance_, momentum_, sums_;
  int y_, mean_out_, variance_out_, saved_mean_, saved_variance_;
};

// What forward leaves as SavedVariance, 1 / sqrt(variance + epsilon), is 0 where x was passed
// through.
template <class T>
class GradSums {
 public:
  GradSums(PrepareContext& context, const BatchNormAttrs& attrs)
      : channels_(context, attrs),
        x_(context.input("X")),
        mean_(context.input("SavedMean")),
        inverse_(context.input("SavedVariance")),
        grad_(context.input("Y@GRAD")),
        sums_(context.set_output("Sums", sums_of(channels_), DType::kFloat64)),
        scale_grad_(context.set_output("Scale@GRAD", Shape{channels_.count()}, dtype_of<T>())),
        bias_grad_(context.set_output("Bias@GRAD", Shape{channels_.count()}, dtype_of<T>())) {}

  void operator()(const KernelContext& c) const {
    const T* x = c.in<T>(x_);
    const T* mean = c.in<T>(mean_);
    const T* inverse = c.in<T>(inverse_);
    const T* grad = c.in<T>(grad_);
    double* sums = c.out<double>(sums_);
    double* of_grad = sums + 1;
    double* of_product = of_grad + channels_.count();
    sums[0] = static_cast<double>(channels_.each());
    channels_.sum(c.tiles(), of_grad,
                  [grad](int64_t i, int64_t) { return static_cast<double>(grad[i]); });
    channels_.sum(c.tiles(), of_product, [=](int64_t i, int64_t k) {
      return static_cast<double>(grad[i]) * static_cast<double>((x[i] - mean[k]) * inverse[k]);
    });
    for (int64_t k = 0; k < channels_.count(); ++k) {
      const bool passed = inverse[k] == T{};
      if (scale_grad_ >= 0) c.out<T>(scale_grad_)[k] = static_cast<T>(of_product[k]);
      if (bias_grad_ >= 0) c.out<T>(bias_grad_)[k] = passed ? T{} : static_cast<T>(of_grad[k]);
    }
  }

 private:
  AllChannels channels_;
  int x_, mean_, inverse_, grad_;
  int sums_, scale_grad_, bias_grad_;
};

template <class T>
class Grad {
 public:
  Grad(PrepareContext& context, const BatchNormAttrs& attrs)
      : channels_(context, attrs),
        means_(static_cast<size_t>(3 * channels_.count())),
        x_(context.input("X")),
        scale_(context.input("Scale")),
        mean_(context.input("SavedMean")),
        inverse_(context.input("SavedVariance")),
        grad_(context.input("Y@GRAD")),
        sums_(context.input("Sums")),
        x_grad_(context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>())) {
    require_sums(context, channels_);
  }

  // dx = scale inverse (dy - mean(dy) - x_hat mean(dy x_hat)).
  void operator()(const KernelContext& c) {
    const T* x = c.in<T>(x_);
    const T* mean = c.in<T>(mean_);
    const T* inverse = c.in<T>(inverse_);
    const T* grad = c.in<T>(grad_);
    const double* sums = c.in<double>(sums_);
    const int64_t count = channels_.count();
    T* factor = means_.data();
    T* back = factor + count;
    T* slope = back + count;
    const double m = sums[0] > 0 ? sums[0] : 1;
    for (int64_t k = 0; k < count; ++k) {
      const bool passed = inverse[k] == T{};
      factor[k] = passed ? T{1} : c.in<T>(scale_)[k] * inverse[k];
      back[k] = passed ? T{} : static_cast<T>(sums[1 + k] / m);
      slope[k] = static_cast<T>(sums[1 + count + k] / m) * inverse[k];
    }
    channels_.each_of(c.tiles(), c.out<T>(x_grad_), [=](int64_t i, int64_t k) {
      return factor[k] * (grad[i] - back[k] - (x[i] - mean[k]) * slope[k]);
    });
  }

 private:
  AllChannels channels_;
  std::vector<T> means_;
  int x_, scale_, mean_, inverse_, grad_, sums_;
  int x_grad_;
};

template <class Body>
std::unique_ptr<Prepared> prepare(PrepareContext& context) {
  const auto attrs = context.attrs<BatchNormAttrs>();
  if (is_misread(context, attrs)) return nullptr;
  return make_prepared(Body(context, attrs));
}

}  // namespace

void register_sync_batch_norm(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare_op, bool in_place) {
      // The second is for images whose channels are last.
      for (const ImageOrder images : {ImageOrder::kChannels, ImageOrder::kPlain}) {
        table.add_last(
            op, DeviceKind::kCpu, dtype_of<T>(),
            {.name = "loop", .prepare = prepare_op, .images = images, .in_place = in_place});
      }
    };
    add("sync_batch_norm_sums", prepare<Sums<T>>, false);
    add("sync_batch_norm", prepare<NormOfStep<T>>, true);
    add("sync_batch_norm_grad_sums", prepare<GradSums<T>>, false);
    add("sync_batch_norm_grad", prepare<Grad<T>>, true);
  });
}

}  // namespace fleet::fluid::cpu
