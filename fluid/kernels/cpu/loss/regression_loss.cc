// Losses that compare values (fluid/ops/loss/regression_loss.h has the formulas).
#include "fluid/ops/loss/regression_loss.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/math/unary.h"
#include "fluid/kernels/cpu/tile_scratch.h"
#include "fluid/kernels/loss/element_losses.h"
#include "fluid/kernels/loss/row_losses.h"

namespace fleet::fluid::cpu {
namespace {

// Exponentials and logarithms: the vectorised ones for float.
template <class T>
using MathOf = std::conditional_t<std::is_same_v<T, float>, FastMath, PlainMath>;

// Of an element with an exponential or a logarithm, in elements of a simple loop.
constexpr int64_t kMathCost = 8;

// f(first, length) for blocks of elements [begin, end).
template <class F>
void each_block(int64_t begin, int64_t end, F f) {
  for (int64_t i = begin; i < end; i += kUnaryBlock) f(i, std::min(kUnaryBlock, end - i));
}
// Of n elements, in tiles.
template <class F>
void each_block(const Tiles& tiles, int64_t n, F f) {
  tiles.split(n, kMathCost, [&](int64_t begin, int64_t end) { each_block(begin, end, f); });
}

// log(1 + e^x) of a block.
template <class T>
void softplus_block(const T* x, T* out, int64_t n) {
  T e[kUnaryBlock];
  for (int64_t i = 0; i < n; ++i) e[i] = -std::abs(x[i]);
  MathOf<T>::exp(e, e, n);
  MathOf<T>::log1p(e, e, n);
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] < T{} ? T{} : x[i]) + e[i];
}

// 1, or the number of labels that count.
template <class T>
T sigmoid_divisor(const Tiles& tiles, const T* labels, int64_t n, T ignore, bool normalize) {
  if (!normalize) return T{1};
  const auto counted = sum_of_parts<int64_t>(tiles, n, 1, [=](int64_t begin, int64_t end) {
    return std::count_if(labels + begin, labels + end,
                         [ignore](T z) { return std::trunc(z) != ignore; });
  });
  return std::max(static_cast<T>(counted), T(1e-5));
}

template <class T>
std::unique_ptr<Prepared> prepare_sigmoid_loss(PrepareContext& context) {
  const auto attrs = context.attrs<SigmoidCrossEntropyAttrs>();
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int label = input_like(context, "Label", "X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const T ignore = static_cast<T>(attrs.ignore_index);
  return make_prepared([=, n = shape.numel(), normalize = attrs.normalize](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* zs = c.in<T>(label);
    T* outs = c.out<T>(out);
    const T divisor = sigmoid_divisor(c.tiles(), zs, n, ignore, normalize);
    each_block(c.tiles(), n, [&](int64_t at, int64_t length) {
      T s[kUnaryBlock];
      softplus_block(xs + at, s, length);
      for (int64_t i = 0; i < length; ++i) {
        const T z = zs[at + i];
        outs[at + i] = std::trunc(z) == ignore ? T{} : (s[i] - xs[at + i] * z) / divisor;
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_sigmoid_loss_grad(PrepareContext& context) {
  const auto attrs = context.attrs<SigmoidCrossEntropyAttrs>();
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int label = input_like(context, "Label", "X");
  const int grad = input_like(context, "Out@GRAD", "X");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  const T ignore = static_cast<T>(attrs.ignore_index);
  return make_prepared([=, n = shape.numel(), normalize = attrs.normalize](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* zs = c.in<T>(label);
    const T* gs = c.in<T>(grad);
    T* outs = c.out<T>(out);
    const T divisor = sigmoid_divisor(c.tiles(), zs, n, ignore, normalize);
    each_block(c.tiles(), n, [&](int64_t at, int64_t length) {
      T s[kUnaryBlock];
      MathOf<T>::sigmoid(xs + at, s, length);
      for (int64_t i = 0; i < length; ++i) {
        const T z = zs[at + i];
        outs[at + i] = std::trunc(z) == ignore ? T{} : gs[at + i] * (s[i] - z) / divisor;
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_log_loss(PrepareContext& context) {
  const T epsilon = static_cast<T>(context.attrs<LogLossAttrs>().epsilon);
  const Shape shape = context.in("Predicted").shape;
  const int predicted = context.input("Predicted");
  const int label = input_like(context, "Labels", "Predicted");
  const int out = context.set_output("Loss", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T* ps = c.in<T>(predicted);
    const T* zs = c.in<T>(label);
    T* outs = c.out<T>(out);
    each_block(c.tiles(), n, [&](int64_t at, int64_t length) {
      T yes[kUnaryBlock];
      T no[kUnaryBlock];
      for (int64_t i = 0; i < length; ++i) yes[i] = ps[at + i] + epsilon;
      for (int64_t i = 0; i < length; ++i) no[i] = T{1} - ps[at + i] + epsilon;
      MathOf<T>::log(yes, yes, length);
      MathOf<T>::log(no, no, length);
      for (int64_t i = 0; i < length; ++i) {
        outs[at + i] = -zs[at + i] * yes[i] - (T{1} - zs[at + i]) * no[i];
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_smooth_l1(PrepareContext& context) {
  const SmoothL1 l = smooth_l1_of(context, dtype_of<T>());
  const T sigma = static_cast<T>(l.sigma);
  return make_prepared([=](const KernelContext& c) {
    c.tiles().split(l.rows, 4 * l.length, [&](int64_t begin, int64_t end) {
      T* losses = tile_scratch<T>(l.length);
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t j = 0; j < l.length; ++j) {
          const int64_t i = row * l.length + j;
          T d = c.in<T>(l.x)[i] - c.in<T>(l.y)[i];
          if (l.inside >= 0) d *= c.in<T>(l.inside)[i];
          if (l.difference >= 0) c.out<T>(l.difference)[i] = d;
          T loss = functions::smooth_l1(d, sigma * sigma);
          if (l.outside >= 0) loss *= c.in<T>(l.outside)[i];
          losses[j] = loss;
        }
        if (l.out >= 0) c.out<T>(l.out)[row] = sum_of(losses, l.length);
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_smooth_l1_grad(PrepareContext& context) {
  const SmoothL1Back l = smooth_l1_back_of(context, dtype_of<T>());
  const T sigma = static_cast<T>(l.sigma);
  return make_prepared([=](const KernelContext& c) {
    c.tiles().split(l.rows * l.length, 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T back = functions::smooth_l1_slope(c.in<T>(l.difference)[i], sigma * sigma);
        if (l.inside >= 0) back *= c.in<T>(l.inside)[i];
        if (l.outside >= 0) back *= c.in<T>(l.outside)[i];
        back *= c.in<T>(l.grad)[i / l.length];
        if (l.x_grad >= 0) c.out<T>(l.x_grad)[i] = back;
        if (l.y_grad >= 0) c.out<T>(l.y_grad)[i] = -back;
      }
    });
  });
}

// f(row) for the rows of bpr_loss, in tiles.
template <class F>
void each_row(const KernelContext& c, const BprLoss& b, const F& f) {
  constexpr int64_t kCost = 24;  // the library's exponential and logarithm
  c.tiles().split(b.rows, kCost * b.classes, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

int64_t checked_class(int64_t label, int64_t classes) {
  if (label >= 0 && label < classes) return label;
  throw_error(ErrorCode::kFeed,
              {.what = "a label is not the index of a class",
               .where = "op bpr_loss, slot 'Label'",
               .expected = str_cat("0 to ", classes - 1),
               .got = str_cat(label),
               .fix = "correct the label, or give the last layer as many outputs as classes"});
}

template <class T>
std::unique_ptr<Prepared> prepare_bpr(PrepareContext& context) {
  const BprLoss b = bpr_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    each_row(c, b, [&](int64_t row) {
      const T* xs = c.in<T>(b.x) + row * b.classes;
      const int64_t label = checked_class(c.in<int64_t>(b.label)[row], b.classes);
      T sum{};
      for (int64_t j = 0; j < b.classes; ++j) {
        if (j != label) sum += functions::softplus(xs[j] - xs[label]);
      }
      c.out<T>(b.out)[row] = sum / static_cast<T>(b.classes - 1);
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_bpr_grad(PrepareContext& context) {
  const BprLoss b = bpr_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    each_row(c, b, [&](int64_t row) {
      const T* xs = c.in<T>(b.x) + row * b.classes;
      T* outs = c.out<T>(b.out) + row * b.classes;
      const int64_t label = checked_class(c.in<int64_t>(b.label)[row], b.classes);
      const T factor = c.in<T>(b.grad)[row] / static_cast<T>(b.classes - 1);
      T sum{};
      for (int64_t j = 0; j < b.classes; ++j) {
        if (j == label) continue;
        outs[j] = functions::bpr_slope(xs[j] - xs[label], factor);
        sum += outs[j];
      }
      outs[label] = -sum;
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_kldiv(PrepareContext& context) {
  const KldivLoss k = kldiv_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(k.x);
    const T* ts = c.in<T>(k.target);
    T* outs = c.out<T>(k.out);
    const auto losses = [=](int64_t at, int64_t length, T* loss) {
      MathOf<T>::log(ts + at, loss, length);
      for (int64_t i = 0; i < length; ++i) {
        const T t = ts[at + i];
        loss[i] = t > T{} ? t * (loss[i] - xs[at + i]) : T{};
      }
    };
    if (!k.summed) {
      return each_block(c.tiles(), k.n,
                        [=](int64_t at, int64_t length) { losses(at, length, outs + at); });
    }
    *outs = sum_of_parts<T>(c.tiles(), k.n, kMathCost, [&](int64_t begin, int64_t end) {
      T sum{};
      each_block(begin, end, [&](int64_t at, int64_t length) {
        T loss[kUnaryBlock];
        losses(at, length, loss);
        sum += sum_of(loss, length);
      });
      return sum;
    });
    *outs /= static_cast<T>(k.divisor);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_kldiv_grad(PrepareContext& context) {
  const KldivLoss k = kldiv_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* ts = c.in<T>(k.target);
    const T* gs = c.in<T>(k.grad);
    T* outs = c.out<T>(k.out);
    c.tiles().split(k.n, 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T g = k.summed ? *gs / static_cast<T>(k.divisor) : gs[i];
        outs[i] = ts[i] > T{} ? -ts[i] * g : T{};
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_label_smooth(PrepareContext& context) {
  const LabelSmoothing l = label_smoothing_of(context, dtype_of<T>());
  const T epsilon = static_cast<T>(l.epsilon);
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(l.x);
    T* outs = c.out<T>(l.out);
    const T even = epsilon / static_cast<T>(l.classes);
    const T* priors = l.prior >= 0 ? c.in<T>(l.prior) : nullptr;
    c.tiles().split(l.n, priors != nullptr ? 8 : 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T share = priors != nullptr ? epsilon * priors[i % l.classes] : even;
        outs[i] = (T{1} - epsilon) * xs[i] + share;
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_label_smooth_grad(PrepareContext& context) {
  const T factor = T{1} - static_cast<T>(context.attrs<LabelSmoothAttrs>().epsilon);
  const Shape shape = context.in("Out@GRAD").shape;
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    c.tiles().split(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) outs[i] = factor * grads[i];
    });
  });
}

// A device for losses that are made element by element.
struct Elements {
  static constexpr DeviceKind kKind = DeviceKind::kCpu;
  template <class T, class F>
  static void run(const KernelContext& c, const F& f, const functions::LossArrays<T, F>& arrays,
                  int64_t n) {
    c.tiles().split(n, kMathCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) arrays.compute(f, i);
    });
  }
};

}  // namespace

void register_regression_loss(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      add_kernel<T>(table, op, "loop", prepare);
    };
    add("sigmoid_cross_entropy_with_logits", prepare_sigmoid_loss<T>);
    add("sigmoid_cross_entropy_with_logits_grad", prepare_sigmoid_loss_grad<T>);
    add("log_loss", prepare_log_loss<T>);
    add_element_losses<Elements, T>(table);
    const auto add_rows = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add_rows("smooth_l1_loss", prepare_smooth_l1<T>);
    add_rows("smooth_l1_loss_grad", prepare_smooth_l1_grad<T>);
    add_rows("bpr_loss", prepare_bpr<T>);
    add_rows("bpr_loss_grad", prepare_bpr_grad<T>);
    add_rows("kldiv_loss", prepare_kldiv<T>);
    add_rows("kldiv_loss_grad", prepare_kldiv_grad<T>);
    add_rows("label_smooth", prepare_label_smooth<T>);
    add_rows("label_smooth_grad", prepare_label_smooth_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
