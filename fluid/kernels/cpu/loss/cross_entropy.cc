// The losses of classification. Labels that equal ignore_index cost nothing; a probability of 0
// costs 1e20, as in the system that the programs come from.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/loss/softmax.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/ops/loss/loss.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
T safe_log(T x) {
  const T value = std::log(x);
  if (value == std::numeric_limits<T>::infinity()) return T(1e20);
  if (value == -std::numeric_limits<T>::infinity()) return T(-1e20);
  return value;
}

[[noreturn]] void throw_bad_label(int64_t label, int64_t classes) {
  throw_error(ErrorCode::kFeed,
              {.what = "a label is not the index of a class",
               .where = "op 'cross_entropy', slot 'Label'",
               .expected = str_cat("0 to ", classes - 1, ", or ignore_index"),
               .got = str_cat(label),
               .fix = "correct the label, or give the last layer as many outputs as classes"});
}

int64_t checked_label(int64_t label, int64_t classes) {
  if (label < 0 || label >= classes) throw_bad_label(label, classes);
  return label;
}

// Y = -log X[label], MatchX = X[label].
template <class T>
std::unique_ptr<Prepared> prepare_hard(PrepareContext& context, int32_t ignore) {
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, -1);
  require_labels(context, with_one_class(shape), DType::kInt64);
  const int x = context.input("X");
  const int label = context.input("Label");
  const int y = context.set_output("Y", with_one_class(shape), dtype_of<T>());
  const int match = context.set_output("MatchX", with_one_class(shape), dtype_of<T>());
  Shape carried = shape;
  carried.push_back(0);
  context.set_output("XShape", carried, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const auto* labels = c.in<int64_t>(label);
    T* ys = c.out<T>(y);
    T* matches = match >= 0 ? c.out<T>(match) : nullptr;
    for (int64_t i = 0; i < view.outer; ++i) {
      const bool ignored = labels[i] == ignore;
      const T p = ignored ? T{1} : xs[i * view.n + checked_label(labels[i], view.n)];
      ys[i] = ignored ? T{} : -safe_log(p);
      if (matches != nullptr) matches[i] = ignored ? T{} : p;
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_cross_entropy2(PrepareContext& context) {
  return prepare_hard<T>(context, context.attrs<CrossEntropy2Attrs>().ignore_index);
}

template <class T>
std::unique_ptr<Prepared> prepare_cross_entropy(PrepareContext& context) {
  const auto attrs = context.attrs<CrossEntropyAttrs>();
  if (!attrs.soft_label) return prepare_hard<T>(context, attrs.ignore_index);
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, -1);
  require_labels(context, shape, dtype_of<T>());
  const int x = context.input("X");
  const int label = context.input("Label");
  const int y = context.set_output("Y", with_one_class(shape), dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* labels = c.in<T>(label);
    T* ys = c.out<T>(y);
    for (int64_t i = 0; i < view.outer; ++i) {
      T sum{};
      for (int64_t j = 0; j < view.n; ++j) {
        sum += labels[i * view.n + j] * safe_log(xs[i * view.n + j]);
      }
      ys[i] = -sum;
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_cross_entropy_grad(PrepareContext& context) {
  const auto attrs = context.attrs<CrossEntropyAttrs>();
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, -1);
  require_labels(context, attrs.soft_label ? shape : with_one_class(shape),
                 attrs.soft_label ? dtype_of<T>() : DType::kInt64);
  const int x = context.input("X");
  const int label = context.input("Label");
  const int y_grad = context.input("Y@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const bool soft = attrs.soft_label;
  const int64_t ignore = attrs.ignore_index;
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* grads = c.in<T>(y_grad);
    T* outs = c.out<T>(x_grad);
    const int64_t n = view.n;
    if (soft) {
      const T* labels = c.in<T>(label);
      for (int64_t i = 0; i < view.outer * n; ++i) outs[i] = -labels[i] * grads[i / n] / xs[i];
      return;
    }
    const auto* labels = c.in<int64_t>(label);
    std::fill(outs, outs + view.outer * n, T{});
    for (int64_t i = 0; i < view.outer; ++i) {
      if (labels[i] == ignore) continue;
      const int64_t at = i * n + checked_label(labels[i], n);
      outs[at] = -grads[i] / xs[at];
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_cross_entropy2_grad(PrepareContext& context) {
  const Shape& carried = context.in("XShape").shape;
  context.require(carried.rank() >= 2, "XShape", "X's shape and a 0", carried.to_string());
  const Shape shape(carried.dims().first(static_cast<size_t>(carried.rank() - 1)));
  const AxisView view(shape, -1);
  require_labels(context, with_one_class(shape), DType::kInt64);
  const int64_t ignore = context.attrs<CrossEntropy2Attrs>().ignore_index;
  const int label = context.input("Label");
  const int match = context.input("MatchX");
  const int y_grad = context.input("Y@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const auto* labels = c.in<int64_t>(label);
    const T* matches = c.in<T>(match);
    const T* grads = c.in<T>(y_grad);
    T* outs = c.out<T>(x_grad);
    std::fill(outs, outs + view.outer * view.n, T{});
    for (int64_t i = 0; i < view.outer; ++i) {
      if (labels[i] == ignore) continue;
      outs[i * view.n + checked_label(labels[i], view.n)] = -grads[i] / matches[i];
    }
  });
}

// Shifted logits are clipped at -64, as in the system that the programs come from.
template <class T>
T row_loss(const AxisView& view, const T* x, int64_t base, const T* soft, int64_t label) {
  T largest = -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < view.n; ++j) largest = std::max(largest, x[base + j * view.inner]);
  const auto shifted = [&](int64_t j) {
    return std::max(x[base + j * view.inner] - largest, T(-64));
  };
  T sum{};
  for (int64_t j = 0; j < view.n; ++j) sum += std::exp(shifted(j));
  const T log_sum = std::log(sum);
  if (soft == nullptr) return log_sum - shifted(label);
  T loss{};
  for (int64_t j = 0; j < view.n; ++j) {
    loss += soft[base + j * view.inner] * (log_sum - shifted(j));
  }
  return loss;
}

template <class T, bool Simd>
std::unique_ptr<Prepared> prepare_with_softmax(PrepareContext& context) {
  const auto attrs = context.attrs<SoftmaxWithCrossEntropyAttrs>();
  const Shape shape = context.in("Logits").shape;
  const AxisView view(shape, attrs.axis);
  const Shape loss_shape = with_one_class(shape, attrs.axis);
  require_labels(context, attrs.soft_label ? shape : loss_shape,
                 attrs.soft_label ? dtype_of<T>() : DType::kInt64);
  const int logits = context.input("Logits");
  const int label = context.input("Label");
  const int probability = context.set_output("Softmax", shape, dtype_of<T>());
  const int loss = context.set_output("Loss", loss_shape, dtype_of<T>());
  const bool soft = attrs.soft_label;
  const int64_t ignore = attrs.ignore_index;
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(logits);
    T* losses = c.out<T>(loss);
    for (int64_t i = 0; i < view.outer * view.inner; ++i) {
      const int64_t base = i / view.inner * view.n * view.inner + i % view.inner;
      if (soft) {
        losses[i] = row_loss<T>(view, xs, base, c.in<T>(label), 0);
      } else {
        const int64_t index = c.in<int64_t>(label)[i];
        losses[i] = index == ignore
                        ? T{}
                        : row_loss<T>(view, xs, base, nullptr, checked_label(index, view.n));
      }
    }
    softmax<T, Simd>(view, xs, c.out<T>(probability), c.tiles());
  });
}

// Rows with an ignored label pass nothing back, unless Paddle's form is asked for.
template <class T>
std::unique_ptr<Prepared> prepare_with_softmax_grad(PrepareContext& context) {
  const auto attrs = context.attrs<SoftmaxWithCrossEntropyAttrs>();
  const Shape shape = context.in("Softmax").shape;
  const AxisView view(shape, attrs.axis);
  require_labels(context, attrs.soft_label ? shape : with_one_class(shape, attrs.axis),
                 attrs.soft_label ? dtype_of<T>() : DType::kInt64);
  const int label = context.input("Label");
  const int probability = context.input("Softmax");
  const int loss_grad = context.input("Loss@GRAD");
  const int out = context.set_output("Logits@GRAD", shape, dtype_of<T>());
  const bool soft = attrs.soft_label;
  const bool ordinary = attrs.paddle_form;
  const int64_t ignore = attrs.ignore_index;
  return make_prepared([=](const KernelContext& c) {
    const T* ps = c.in<T>(probability);
    const T* grads = c.in<T>(loss_grad);
    T* outs = c.out<T>(out);
    for (int64_t i = 0; i < view.outer * view.inner; ++i) {
      const int64_t base = i / view.inner * view.n * view.inner + i % view.inner;
      const int64_t index = soft ? -1 : c.in<int64_t>(label)[i];
      const bool ignored = !soft && !ordinary && index == ignore;
      if (!soft && index != ignore) checked_label(index, view.n);
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t at = base + j * view.inner;
        const T target = soft ? c.in<T>(label)[at] : T(j == index ? 1 : 0);
        outs[at] = ignored ? T{} : grads[i] * (ps[at] - target);
      }
    }
  });
}

}  // namespace

void register_cross_entropy(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, const char* name, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = name, .prepare = prepare});
    };
    add("cross_entropy", "loop", prepare_cross_entropy<T>);
    add("cross_entropy_grad", "loop", prepare_cross_entropy_grad<T>);
    add("cross_entropy2", "loop", prepare_cross_entropy2<T>);
    add("cross_entropy_grad2", "loop", prepare_cross_entropy2_grad<T>);
    if constexpr (std::is_same_v<T, float>) {
      add("softmax_with_cross_entropy", "simd", prepare_with_softmax<T, true>);
    }
    add("softmax_with_cross_entropy", "reference", prepare_with_softmax<T, false>);
    add("softmax_with_cross_entropy_grad", "loop", prepare_with_softmax_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
