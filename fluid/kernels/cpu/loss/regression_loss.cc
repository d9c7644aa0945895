// Losses that compare values (fluid/ops/loss/regression_loss.h has the formulas).
#include "fluid/ops/loss/regression_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/loss/softmax.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/math/unary.h"

namespace fleet::fluid::cpu {
namespace {

// Exponentials and logarithms: the vectorised ones for float.
template <class T>
using MathOf = std::conditional_t<std::is_same_v<T, float>, FastMath, PlainMath>;

// f(first, length) for blocks of n elements.
template <class F>
void each_block(int64_t n, F f) {
  for (int64_t i = 0; i < n; i += kUnaryBlock) f(i, std::min(kUnaryBlock, n - i));
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

void require_like(const PrepareContext& context, const char* slot, const char* like) {
  const ValueSpec& wanted = context.in(like);
  const ValueSpec& given = context.in(slot);
  context.require(given.dtype == wanted.dtype && given.shape == wanted.shape, slot,
                  str_cat(dtype_name(wanted.dtype), wanted.shape),
                  str_cat(dtype_name(given.dtype), given.shape));
}

// 1, or the number of labels that count.
template <class T>
T sigmoid_divisor(const T* labels, int64_t n, T ignore, bool normalize) {
  if (!normalize) return T{1};
  const auto counted =
      std::count_if(labels, labels + n, [ignore](T z) { return std::trunc(z) != ignore; });
  return std::max(static_cast<T>(counted), T(1e-5));
}

template <class T>
std::unique_ptr<Prepared> prepare_sigmoid_loss(PrepareContext& context) {
  const auto attrs = context.attrs<SigmoidCrossEntropyAttrs>();
  const Shape shape = context.in("X").shape;
  require_like(context, "Label", "X");
  const int x = context.input("X");
  const int label = context.input("Label");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const T ignore = static_cast<T>(attrs.ignore_index);
  return make_prepared([=, n = shape.numel(), normalize = attrs.normalize](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* zs = c.in<T>(label);
    T* outs = c.out<T>(out);
    const T divisor = sigmoid_divisor(zs, n, ignore, normalize);
    each_block(n, [&](int64_t at, int64_t length) {
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
  require_like(context, "Label", "X");
  require_like(context, "Out@GRAD", "X");
  const int x = context.input("X");
  const int label = context.input("Label");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  const T ignore = static_cast<T>(attrs.ignore_index);
  return make_prepared([=, n = shape.numel(), normalize = attrs.normalize](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* zs = c.in<T>(label);
    const T* gs = c.in<T>(grad);
    T* outs = c.out<T>(out);
    const T divisor = sigmoid_divisor(zs, n, ignore, normalize);
    each_block(n, [&](int64_t at, int64_t length) {
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
  require_like(context, "Labels", "Predicted");
  const int predicted = context.input("Predicted");
  const int label = context.input("Labels");
  const int out = context.set_output("Loss", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T* ps = c.in<T>(predicted);
    const T* zs = c.in<T>(label);
    T* outs = c.out<T>(out);
    each_block(n, [&](int64_t at, int64_t length) {
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

// Losses whose gradient is a formula of two inputs and the incoming gradient.
template <class T, class F>
std::unique_ptr<Prepared> prepare_pointwise(PrepareContext& context, const char* first,
                                            const char* second, const char* third,
                                            const char* output, F formula) {
  const Shape shape = context.in(first).shape;
  require_like(context, second, first);
  require_like(context, third, first);
  const int a = context.input(first);
  const int b = context.input(second);
  const int g = context.input(third);
  const int out = context.set_output(output, shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T* as = c.in<T>(a);
    const T* bs = c.in<T>(b);
    const T* gs = c.in<T>(g);
    T* outs = c.out<T>(out);
    for (int64_t i = 0; i < n; ++i) outs[i] = formula(as[i], bs[i], gs[i]);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_log_loss_grad(PrepareContext& context) {
  const T epsilon = static_cast<T>(context.attrs<LogLossAttrs>().epsilon);
  return prepare_pointwise<T>(context, "Predicted", "Labels", "Loss@GRAD", "Predicted@GRAD",
                              [epsilon](T p, T z, T g) {
                                return g * (-z / (p + epsilon) + (T{1} - z) / (T{1} - p + epsilon));
                              });
}

template <class T>
std::unique_ptr<Prepared> prepare_hinge(PrepareContext& context) {
  return prepare_pointwise<T>(context, "Logits", "Labels", "Logits", "Loss", [](T x, T z, T) {
    const T margin = T{1} - (T{2} * z - T{1}) * x;
    return margin < T{} ? T{} : margin;
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_hinge_grad(PrepareContext& context) {
  return prepare_pointwise<T>(context, "Logits", "Labels", "Loss@GRAD", "Logits@GRAD",
                              [](T x, T z, T g) {
                                const T sign = T{2} * z - T{1};
                                return T{1} - sign * x > T{} ? -sign * g : T{};
                              });
}

template <class T>
std::unique_ptr<Prepared> prepare_huber(PrepareContext& context) {
  const T delta = static_cast<T>(context.attrs<HuberLossAttrs>().delta);
  const Shape shape = context.in("X").shape;
  require_like(context, "Y", "X");
  const int x = context.input("X");
  const int y = context.input("Y");
  const int residual = context.set_output("Residual", shape, dtype_of<T>());
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    for (int64_t i = 0; i < n; ++i) {
      const T r = c.in<T>(y)[i] - c.in<T>(x)[i];
      const T size = std::abs(r);
      if (residual >= 0) c.out<T>(residual)[i] = r;
      if (out < 0) continue;
      c.out<T>(out)[i] = size <= delta ? T(0.5) * r * r : delta * (size - T(0.5) * delta);
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_huber_grad(PrepareContext& context) {
  const T delta = static_cast<T>(context.attrs<HuberLossAttrs>().delta);
  const Shape shape = context.in("Residual").shape;
  require_like(context, "Out@GRAD", "Residual");
  const int residual = context.input("Residual");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    for (int64_t i = 0; i < n; ++i) {
      const T r = c.in<T>(residual)[i];
      const T slope = r > delta ? delta : r < -delta ? -delta : r;
      const T back = slope * c.in<T>(grad)[i];
      if (x_grad >= 0) c.out<T>(x_grad)[i] = -back;
      if (y_grad >= 0) c.out<T>(y_grad)[i] = back;
    }
  });
}

// |d| below 1 / sigma^2 counts squared.
template <class T>
T smooth_l1(T d, T sigma2) {
  const T size = std::abs(d);
  return size < T{1} / sigma2 ? T(0.5) * d * d * sigma2 : size - T(0.5) / sigma2;
}

template <class T>
std::unique_ptr<Prepared> prepare_smooth_l1(PrepareContext& context) {
  const T sigma = static_cast<T>(context.attrs<SmoothL1LossAttrs>().sigma);
  const Shape shape = context.in("X").shape;
  context.require(shape.rank() >= 2, "X", "[n, ...]", shape.to_string());
  require_like(context, "Y", "X");
  const int x = context.input("X");
  const int y = context.input("Y");
  const int inside = context.input("InsideWeight");
  const int outside = context.input("OutsideWeight");
  if (inside >= 0) require_like(context, "InsideWeight", "X");
  if (outside >= 0) require_like(context, "OutsideWeight", "X");
  const int64_t rows = shape[0];
  const int64_t length = shape.numel(1, shape.rank());
  const int difference = context.set_output("Diff", shape, dtype_of<T>());
  const int out = context.set_output("Out", Shape{rows, 1}, dtype_of<T>());
  std::vector<T> losses(static_cast<size_t>(length));
  return make_prepared([=](const KernelContext& c) mutable {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t j = 0; j < length; ++j) {
        const int64_t i = row * length + j;
        T d = c.in<T>(x)[i] - c.in<T>(y)[i];
        if (inside >= 0) d *= c.in<T>(inside)[i];
        if (difference >= 0) c.out<T>(difference)[i] = d;
        T loss = smooth_l1(d, sigma * sigma);
        if (outside >= 0) loss *= c.in<T>(outside)[i];
        losses[static_cast<size_t>(j)] = loss;
      }
      if (out >= 0) c.out<T>(out)[row] = sum_of(losses.data(), length);
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_smooth_l1_grad(PrepareContext& context) {
  const T sigma = static_cast<T>(context.attrs<SmoothL1LossAttrs>().sigma);
  const Shape shape = context.in("Diff").shape;
  const int64_t rows = shape[0];
  context.require(context.in("Out@GRAD").shape.numel() == rows, "Out@GRAD", str_cat(rows, " rows"),
                  context.in("Out@GRAD").shape.to_string());
  const int difference = context.input("Diff");
  const int inside = context.input("InsideWeight");
  const int outside = context.input("OutsideWeight");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", shape, dtype_of<T>());
  const int64_t length = shape.numel(1, shape.rank());
  return make_prepared([=](const KernelContext& c) {
    const T sigma2 = sigma * sigma;
    for (int64_t i = 0; i < rows * length; ++i) {
      const T d = c.in<T>(difference)[i];
      const T sign = d > T{} ? T{1} : d < T{} ? T{-1} : T{};
      T back = std::abs(d) < T{1} / sigma2 ? sigma2 * d : sign;
      if (inside >= 0) back *= c.in<T>(inside)[i];
      if (outside >= 0) back *= c.in<T>(outside)[i];
      back *= c.in<T>(grad)[i / length];
      if (x_grad >= 0) c.out<T>(x_grad)[i] = back;
      if (y_grad >= 0) c.out<T>(y_grad)[i] = -back;
    }
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

struct Bpr {
  int64_t rows;
  int64_t classes;
  int x;
  int label;
};

Bpr bpr_of(const PrepareContext& context) {
  const Shape& shape = context.in("X").shape;
  const ValueSpec& label = context.in("Label");
  const AxisView view(shape, -1);
  context.require(view.n >= 2, "X", "two classes or more", shape.to_string());
  context.require(label.dtype == DType::kInt64 && label.shape.numel() == view.outer, "Label",
                  str_cat("int64, ", view.outer, " elements"),
                  str_cat(dtype_name(label.dtype), label.shape));
  return {view.outer, view.n, context.input("X"), context.input("Label")};
}

template <class T>
std::unique_ptr<Prepared> prepare_bpr(PrepareContext& context) {
  const Bpr b = bpr_of(context);
  Shape shape = context.in("X").shape;
  shape.set(-1, 1);
  const int out = context.set_output("Y", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    for (int64_t row = 0; row < b.rows; ++row) {
      const T* xs = c.in<T>(b.x) + row * b.classes;
      const int64_t label = checked_class(c.in<int64_t>(b.label)[row], b.classes);
      T sum{};
      for (int64_t j = 0; j < b.classes; ++j) {
        if (j == label) continue;
        const T d = xs[j] - xs[label];
        sum += (d > T{} ? d : T{}) + std::log1p(std::exp(-std::abs(d)));
      }
      c.out<T>(out)[row] = sum / static_cast<T>(b.classes - 1);
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_bpr_grad(PrepareContext& context) {
  const Bpr b = bpr_of(context);
  context.require(context.in("Y@GRAD").shape.numel() == b.rows, "Y@GRAD", str_cat(b.rows, " rows"),
                  context.in("Y@GRAD").shape.to_string());
  const int grad = context.input("Y@GRAD");
  const int out = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    for (int64_t row = 0; row < b.rows; ++row) {
      const T* xs = c.in<T>(b.x) + row * b.classes;
      T* outs = c.out<T>(out) + row * b.classes;
      const int64_t label = checked_class(c.in<int64_t>(b.label)[row], b.classes);
      const T factor = c.in<T>(grad)[row] / static_cast<T>(b.classes - 1);
      T sum{};
      for (int64_t j = 0; j < b.classes; ++j) {
        if (j == label) continue;
        outs[j] = factor / (T{1} + std::exp(xs[label] - xs[j]));
        sum += outs[j];
      }
      outs[label] = -sum;
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_rank_loss(PrepareContext& context) {
  return prepare_pointwise<T>(context, "Left", "Right", "Label", "Out", [](T l, T r, T z) {
    const T d = l - r;
    return (d > T{} ? d : T{}) + std::log1p(std::exp(-std::abs(d))) - z * d;
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_rank_loss_grad(PrepareContext& context) {
  const Shape shape = context.in("Left").shape;
  for (const char* slot : {"Right", "Label", "Out@GRAD"}) require_like(context, slot, "Left");
  const int left = context.input("Left");
  const int right = context.input("Right");
  const int label = context.input("Label");
  const int grad = context.input("Out@GRAD");
  const int left_grad = context.set_output("Left@GRAD", shape, dtype_of<T>());
  const int right_grad = context.set_output("Right@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    for (int64_t i = 0; i < n; ++i) {
      const T d = c.in<T>(left)[i] - c.in<T>(right)[i];
      const T back = c.in<T>(grad)[i] * (T{1} / (T{1} + std::exp(-d)) - c.in<T>(label)[i]);
      if (left_grad >= 0) c.out<T>(left_grad)[i] = back;
      if (right_grad >= 0) c.out<T>(right_grad)[i] = -back;
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_margin_rank(PrepareContext& context) {
  const T margin = static_cast<T>(context.attrs<MarginRankLossAttrs>().margin);
  const Shape shape = context.in("X1").shape;
  require_like(context, "X2", "X1");
  require_like(context, "Label", "X1");
  const int x1 = context.input("X1");
  const int x2 = context.input("X2");
  const int label = context.input("Label");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const int activated = context.set_output("Activated", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    for (int64_t i = 0; i < n; ++i) {
      const T loss = margin - c.in<T>(label)[i] * (c.in<T>(x1)[i] - c.in<T>(x2)[i]);
      if (out >= 0) c.out<T>(out)[i] = loss > T{} ? loss : T{};
      if (activated >= 0) c.out<T>(activated)[i] = loss > T{} ? T{1} : T{};
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_margin_rank_grad(PrepareContext& context) {
  const Shape shape = context.in("Label").shape;
  require_like(context, "Activated", "Label");
  require_like(context, "Out@GRAD", "Label");
  const int label = context.input("Label");
  const int activated = context.input("Activated");
  const int grad = context.input("Out@GRAD");
  const int x1_grad = context.set_output("X1@GRAD", shape, dtype_of<T>());
  const int x2_grad = context.set_output("X2@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    for (int64_t i = 0; i < n; ++i) {
      const T back = c.in<T>(label)[i] * c.in<T>(activated)[i] * c.in<T>(grad)[i];
      if (x1_grad >= 0) c.out<T>(x1_grad)[i] = -back;
      if (x2_grad >= 0) c.out<T>(x2_grad)[i] = back;
    }
  });
}

// What a sum over all elements is divided by; 0: no sum.
template <class T>
T kldiv_divisor(const std::string& reduction, const Shape& shape) {
  if (reduction == "none") return T{};
  if (reduction == "sum") return T{1};
  return static_cast<T>(reduction == "mean" ? shape.numel() : shape[0]);
}

template <class T>
std::unique_ptr<Prepared> prepare_kldiv(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  require_like(context, "Target", "X");
  const T divisor = kldiv_divisor<T>(context.attrs<KldivLossAttrs>().reduction, shape);
  const bool whole = divisor != T{};
  const int x = context.input("X");
  const int target = context.input("Target");
  const int out = context.set_output("Loss", whole ? Shape{1} : shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* ts = c.in<T>(target);
    T* outs = c.out<T>(out);
    T sum{};
    each_block(n, [&](int64_t at, int64_t length) {
      T loss[kUnaryBlock];
      MathOf<T>::log(ts + at, loss, length);
      for (int64_t i = 0; i < length; ++i) {
        const T t = ts[at + i];
        loss[i] = t > T{} ? t * (loss[i] - xs[at + i]) : T{};
      }
      if (whole) {
        sum += sum_of(loss, length);
      } else {
        std::copy(loss, loss + length, outs + at);
      }
    });
    if (whole) *outs = sum / divisor;
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_kldiv_grad(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  require_like(context, "Target", "X");
  const T divisor = kldiv_divisor<T>(context.attrs<KldivLossAttrs>().reduction, shape);
  const bool whole = divisor != T{};
  context.require(context.in("Loss@GRAD").shape.numel() == (whole ? 1 : shape.numel()), "Loss@GRAD",
                  whole ? "one element" : shape.to_string(),
                  context.in("Loss@GRAD").shape.to_string());
  const int target = context.input("Target");
  const int grad = context.input("Loss@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T* ts = c.in<T>(target);
    const T* gs = c.in<T>(grad);
    T* outs = c.out<T>(out);
    for (int64_t i = 0; i < n; ++i) {
      const T g = whole ? *gs / divisor : gs[i];
      outs[i] = ts[i] > T{} ? -ts[i] * g : T{};
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_label_smooth(PrepareContext& context) {
  const T epsilon = static_cast<T>(context.attrs<LabelSmoothAttrs>().epsilon);
  const Shape shape = context.in("X").shape;
  context.require(shape.rank() >= 1, "X", "[..., classes]", shape.to_string());
  const int64_t classes = shape[-1];
  const int x = context.input("X");
  const int prior = context.input("PriorDist");
  if (prior >= 0) {
    context.require(context.in("PriorDist").shape.numel() == classes, "PriorDist",
                    str_cat(classes, " elements"), context.in("PriorDist").shape.to_string());
  }
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    T* outs = c.out<T>(out);
    const T even = epsilon / static_cast<T>(classes);
    for (int64_t i = 0; i < n; ++i) {
      const T share = prior >= 0 ? epsilon * c.in<T>(prior)[i % classes] : even;
      outs[i] = (T{1} - epsilon) * xs[i] + share;
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_label_smooth_grad(PrepareContext& context) {
  const T factor = T{1} - static_cast<T>(context.attrs<LabelSmoothAttrs>().epsilon);
  const Shape shape = context.in("Out@GRAD").shape;
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    for (int64_t i = 0; i < n; ++i) c.out<T>(out)[i] = factor * c.in<T>(grad)[i];
  });
}

}  // namespace

void register_regression_loss(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      add_kernel<T>(table, op, "loop", prepare);
    };
    add("sigmoid_cross_entropy_with_logits", prepare_sigmoid_loss<T>);
    add("sigmoid_cross_entropy_with_logits_grad", prepare_sigmoid_loss_grad<T>);
    add("log_loss", prepare_log_loss<T>);
    add("log_loss_grad", prepare_log_loss_grad<T>);
    add("hinge_loss", prepare_hinge<T>);
    add("hinge_loss_grad", prepare_hinge_grad<T>);
    add("huber_loss", prepare_huber<T>);
    add("huber_loss_grad", prepare_huber_grad<T>);
    add("smooth_l1_loss", prepare_smooth_l1<T>);
    add("smooth_l1_loss_grad", prepare_smooth_l1_grad<T>);
    add("bpr_loss", prepare_bpr<T>);
    add("bpr_loss_grad", prepare_bpr_grad<T>);
    add("rank_loss", prepare_rank_loss<T>);
    add("rank_loss_grad", prepare_rank_loss_grad<T>);
    add("margin_rank_loss", prepare_margin_rank<T>);
    add("margin_rank_loss_grad", prepare_margin_rank_grad<T>);
    add("kldiv_loss", prepare_kldiv<T>);
    add("kldiv_loss_grad", prepare_kldiv_grad<T>);
    add("label_smooth", prepare_label_smooth<T>);
    add("label_smooth_grad", prepare_label_smooth_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
