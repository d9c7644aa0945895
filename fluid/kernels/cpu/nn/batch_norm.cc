#include <algorithm>
#include <cmath>
#include <vector>

#include "fluid/kernels/cpu/nn/channels.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/kernels/image_layout.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
class BatchNorm {
 public:
  BatchNorm(const BatchNormSlots& slots, bool blocked)
      : at_(slots),
        attrs_(slots.attrs),
        v_(slots.channels),
        blocked_(blocked),
        factor_(static_cast<size_t>(v_.count)) {}

  void operator()(const KernelContext& c) {
    T* mean = c.out<T>(at_.saved_mean);
    T* variance = c.out<T>(at_.saved_variance);
    const T* x = c.in<T>(at_.x);
    const bool global = attrs_.global_stats();
    if (!global && v_.each() == 1) return pass_through(c, x, mean, variance);
    if (global) {
      std::copy_n(c.in<T>(at_.mean), v_.count, mean);
      std::copy_n(c.in<T>(at_.variance), v_.count, variance);
      keep_running(c);
    }
    if (blocked_ && image_block() == 16) {
      by_block<16>(c, x, mean, variance);
    } else if (blocked_) {
      by_block<8>(c, x, mean, variance);
    } else if (v_.inner > 1) {
      by_channel(c, x, mean, variance);
    } else {
      by_row(c, x, mean, variance);
    }
    if (!global) move_running(c, mean, variance);
    for (int64_t k = 0; k < v_.count; ++k) variance[k] = inverse_of(variance[k]);
  }

 private:
  T inverse_of(T variance) const {
    return T{1} / std::sqrt(variance + static_cast<T>(attrs_.epsilon));
  }

  // What a channel's first pass brings into the cache, the others find there.
  void by_channel(const KernelContext& c, const T* x, T* mean, T* variance) const {
    const T m = static_cast<T>(v_.each());
    T* y = c.out<T>(at_.y);
    each_channel(v_, c.tiles(), 3, [&](int64_t k) {
      if (!attrs_.global_stats()) {
        mean[k] = channel_sum<T>(v_, k, [x](int64_t i) { return x[i]; }) / m;
        variance[k] = channel_sum<T>(v_, k,
                                     [x, centre = mean[k]](int64_t i) {
                                       const T centred = x[i] - centre;
                                       return centred * centred;
                                     }) /
                      m;
      }
      const T centre = mean[k];
      const T factor = inverse_of(variance[k]) * c.in<T>(at_.scale)[k];
      const T shift = c.in<T>(at_.bias)[k];
      channel_each(v_, k, [=](int64_t i) { y[i] = (x[i] - centre) * factor + shift; });
    });
  }

  template <int64_t Block>
  void by_block(const KernelContext& context, const T* x, T* mean, T* variance) const {
    const T m = static_cast<T>(v_.each());
    const auto one = [&](int64_t block) {
      const int64_t first = block * Block;
      if (!attrs_.global_stats()) {
        block_sums<Block>(v_, block, mean + first, [x](int64_t i, int64_t) { return x[i]; });
        for (int64_t c = 0; c < Block; ++c) mean[first + c] /= m;
      }
      T centre[Block];
      std::copy_n(mean + first, Block, centre);
      if (!attrs_.global_stats()) {
        block_sums<Block>(v_, block, variance + first, [x, &centre](int64_t i, int64_t c) {
          const T centred = x[i] - centre[c];
          return centred * centred;
        });
        for (int64_t c = 0; c < Block; ++c) variance[first + c] /= m;
      }
      T factor[Block];
      T shift[Block];
      std::copy_n(context.in<T>(at_.bias) + first, Block, shift);
      for (int64_t c = 0; c < Block; ++c) {
        factor[c] = inverse_of(variance[first + c]) * context.in<T>(at_.scale)[first + c];
      }
      block_each<Block>(v_, block, context.out<T>(at_.y), [&](int64_t i, int64_t c) {
        return (x[i] - centre[c]) * factor[c] + shift[c];
      });
    };
    each_channel(v_, context.tiles(), 3, one, Block);
  }

  void by_row(const KernelContext& c, const T* x, T* mean, T* variance) {
    if (!attrs_.global_stats()) {
      const T m = static_cast<T>(v_.each());
      channel_sums(v_, c.tiles(), mean, [x](int64_t i, int64_t) { return x[i]; });
      for (int64_t k = 0; k < v_.count; ++k) mean[k] /= m;
      channel_sums(v_, c.tiles(), variance, [x, mean](int64_t i, int64_t k) {
        const T centred = x[i] - mean[k];
        return centred * centred;
      });
      for (int64_t k = 0; k < v_.count; ++k) variance[k] /= m;
    }
    const T* scale = c.in<T>(at_.scale);
    const T* bias = c.in<T>(at_.bias);
    T* factor = factor_.data();
    for (int64_t k = 0; k < v_.count; ++k) factor[k] = inverse_of(variance[k]) * scale[k];
    each_element(v_, c.tiles(), c.out<T>(at_.y),
                 [=](int64_t i, int64_t k) { return (x[i] - mean[k]) * factor[k] + bias[k]; });
  }

  void pass_through(const KernelContext& c, const T* x, T* mean, T* inverse) const {
    if (x != c.out<T>(at_.y))
      copy_in_tiles(c.tiles(), x, c.out<T>(at_.y), static_cast<size_t>(v_.numel()) * sizeof(T));
    std::fill_n(mean, v_.count, T{});
    std::fill_n(inverse, v_.count, T{});
    keep_running(c);
  }

  void keep_running(const KernelContext& c) const {
    const auto keep = [&](int in, int out) {
      if (out >= 0 && c.in<T>(in) != c.out<T>(out))
        std::copy_n(c.in<T>(in), v_.count, c.out<T>(out));
    };
    keep(at_.mean, at_.mean_out);
    keep(at_.variance, at_.variance_out);
  }

  void move_running(const KernelContext& c, const T* mean, const T* variance) const {
    const T momentum = at_.momentum >= 0 ? static_cast<T>(*c.in<float>(at_.momentum))
                                         : static_cast<T>(attrs_.momentum);
    const auto move = [&](int in, int out, const T* now) {
      const T* from = c.in<T>(in);
      T* to = c.out<T>(out);
      for (int64_t k = 0; k < v_.count; ++k)
        to[k] = momentum * from[k] + (T{1} - momentum) * now[k];
    };
    move(at_.mean, at_.mean_out, mean);
    move(at_.variance, at_.variance_out, variance);
  }

  BatchNormSlots at_;
  BatchNormAttrs attrs_;
  Channels v_;
  bool blocked_;
  std::vector<T> factor_;
};

template <class T>
std::unique_ptr<Prepared> prepare_batch_norm(PrepareContext& context) {
  const auto attrs = context.attrs<BatchNormAttrs>();
  if (is_misread(context, attrs)) return nullptr;
  const bool blocked = context.in("X").layout == Layout::kBlocked;
  return make_prepared(BatchNorm<T>(batch_norm_of(context, dtype_of<T>(), dtype_of<T>()), blocked));
}

template <class T>
class BatchNormGrad {
 public:
  BatchNormGrad(const BatchNormBackSlots& slots, bool blocked)
      : at_(slots),
        attrs_(slots.attrs),
        v_(slots.channels),
        blocked_(blocked),
        sums_(static_cast<size_t>(4 * v_.count)) {}

  void operator()(const KernelContext& c) {
    const T* x = c.in<T>(at_.x);
    const T* grad = c.in<T>(at_.grad);
    const T* mean = c.in<T>(at_.mean);
    const T* scale = c.in<T>(at_.scale);
    T* inverse = part(0);
    T* bias_sum = part(1);
    T* scale_sum = part(2);
    T* shift = part(3);
    const bool global = attrs_.global_stats();
    if (!global && v_.each() == 1) return pass_through(c, grad);
    for (int64_t k = 0; k < v_.count; ++k) {
      const T saved = c.in<T>(at_.variance)[k];
      inverse[k] = global ? T{1} / std::sqrt(saved + static_cast<T>(attrs_.epsilon)) : saved;
    }
    // dx = scale inverse (dy - mean(dy) - x_hat mean(dy x_hat)); the means are gone when the
    // statistics do not depend on x.
    const T m = global ? T{} : T{1} / static_cast<T>(v_.each());
    T* x_grads = at_.x_grad >= 0 ? c.out<T>(at_.x_grad) : nullptr;
    if (blocked_ && image_block() == 16) {
      by_block<16>(c, m, x_grads);
    } else if (blocked_) {
      by_block<8>(c, m, x_grads);
    } else if (v_.inner > 1) {
      by_channel(c, m, x_grads);
    } else {
      channel_sums(v_, c.tiles(), bias_sum, [grad](int64_t i, int64_t) { return grad[i]; });
      channel_sums(v_, c.tiles(), scale_sum,
                   [=](int64_t i, int64_t k) { return grad[i] * ((x[i] - mean[k]) * inverse[k]); });
    }
    if (at_.scale_grad >= 0) std::copy_n(scale_sum, v_.count, c.out<T>(at_.scale_grad));
    if (at_.bias_grad >= 0) std::copy_n(bias_sum, v_.count, c.out<T>(at_.bias_grad));
    if (x_grads == nullptr || blocked_ || v_.inner > 1) return;
    for (int64_t k = 0; k < v_.count; ++k) {
      bias_sum[k] *= m;
      scale_sum[k] *= m * inverse[k];
      shift[k] = scale[k] * inverse[k];
    }
    each_element(v_, c.tiles(), x_grads, [=](int64_t i, int64_t k) {
      return shift[k] * (grad[i] - bias_sum[k] - (x[i] - mean[k]) * scale_sum[k]);
    });
  }

 private:
  T* part(int64_t i) { return sums_.data() + i * v_.count; }

  void by_channel(const KernelContext& c, T m, T* x_grads) {
    const T* x = c.in<T>(at_.x);
    const T* grad = c.in<T>(at_.grad);
    const T* inverse = part(0);
    each_channel(v_, c.tiles(), 3, [&](int64_t k) {
      const T centre = c.in<T>(at_.mean)[k];
      const T factor = inverse[k];
      const T bias_sum = channel_sum<T>(v_, k, [grad](int64_t i) { return grad[i]; });
      const T scale_sum =
          channel_sum<T>(v_, k, [=](int64_t i) { return grad[i] * ((x[i] - centre) * factor); });
      part(1)[k] = bias_sum;
      part(2)[k] = scale_sum;
      if (x_grads == nullptr) return;
      const T all = c.in<T>(at_.scale)[k] * factor;
      const T back = bias_sum * m;
      const T slope = scale_sum * (m * factor);
      channel_each(
          v_, k, [=](int64_t i) { x_grads[i] = all * (grad[i] - back - (x[i] - centre) * slope); });
    });
  }

  template <int64_t Block>
  void by_block(const KernelContext& context, T m, T* x_grads) {
    const T* x = context.in<T>(at_.x);
    const T* grad = context.in<T>(at_.grad);
    const auto one = [&](int64_t block) {
      const int64_t first = block * Block;
      T centre[Block];
      T factor[Block];
      std::copy_n(context.in<T>(at_.mean) + first, Block, centre);
      std::copy_n(part(0) + first, Block, factor);
      T* bias_sum = part(1) + first;
      T* scale_sum = part(2) + first;
      block_sums<Block>(v_, block, bias_sum, [grad](int64_t i, int64_t) { return grad[i]; });
      block_sums<Block>(v_, block, scale_sum, [&](int64_t i, int64_t c) {
        return grad[i] * ((x[i] - centre[c]) * factor[c]);
      });
      if (x_grads == nullptr) return;
      T all[Block];
      T back[Block];
      T slope[Block];
      for (int64_t c = 0; c < Block; ++c) {
        all[c] = context.in<T>(at_.scale)[first + c] * factor[c];
        back[c] = bias_sum[c] * m;
        slope[c] = scale_sum[c] * (m * factor[c]);
      }
      block_each<Block>(v_, block, x_grads, [&](int64_t i, int64_t c) {
        return all[c] * (grad[i] - back[c] - (x[i] - centre[c]) * slope[c]);
      });
    };
    each_channel(v_, context.tiles(), 3, one, Block);
  }

  void pass_through(const KernelContext& c, const T* grad) const {
    if (at_.x_grad >= 0 && grad != c.out<T>(at_.x_grad)) {
      copy_in_tiles(c.tiles(), grad, c.out<T>(at_.x_grad),
                    static_cast<size_t>(v_.numel()) * sizeof(T));
    }
    for (const int out : {at_.scale_grad, at_.bias_grad}) {
      if (out >= 0) std::fill_n(c.out<T>(out), v_.count, T{});
    }
  }

  BatchNormBackSlots at_;
  BatchNormAttrs attrs_;
  Channels v_;
  bool blocked_;
  std::vector<T> sums_;
};

template <class T>
std::unique_ptr<Prepared> prepare_batch_norm_grad(PrepareContext& context) {
  const auto attrs = context.attrs<BatchNormAttrs>();
  if (is_misread(context, attrs)) return nullptr;
  const bool blocked = context.in("X").layout == Layout::kBlocked;
  return make_prepared(
      BatchNormGrad<T>(batch_norm_back_of(context, dtype_of<T>(), dtype_of<T>()), blocked));
}

}  // namespace

void register_batch_norm(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      // The second is for images whose channels are last.
      for (const ImageOrder images : {ImageOrder::kChannels, ImageOrder::kPlain}) {
        table.add_last(op, DeviceKind::kCpu, dtype_of<T>(),
                       {.name = "loop", .prepare = prepare, .images = images, .in_place = true});
      }
    };
    add("batch_norm", prepare_batch_norm<T>);
    add("batch_norm_grad", prepare_batch_norm_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
