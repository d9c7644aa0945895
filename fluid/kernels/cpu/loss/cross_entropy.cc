// The losses of classification. Labels that equal ignore_index cost nothing; a probability of 0
// costs 1e20, as in the system that the programs come from.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/loss/softmax.h"
#include "fluid/kernels/cpu/math/lanes.h"
#include "fluid/kernels/cpu/math/lines.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_scratch.h"
#include "fluid/ops/loss/loss.h"

namespace fleet::fluid::cpu {
namespace {

// Of a logarithm, in elements of a simple loop.
constexpr int64_t kLogCost = 16;

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
    c.tiles().split(view.outer, kLogCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const bool ignored = labels[i] == ignore;
        const T p = ignored ? T{1} : xs[i * view.n + checked_label(labels[i], view.n)];
        ys[i] = ignored ? T{} : -safe_log(p);
        if (matches != nullptr) matches[i] = ignored ? T{} : p;
      }
    });
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
    c.tiles().split(view.outer, view.n * kLogCost, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T sum{};
        for (int64_t j = 0; j < view.n; ++j) {
          sum += labels[i * view.n + j] * safe_log(xs[i * view.n + j]);
        }
        ys[i] = -sum;
      }
    });
  });
}

// Zeros, but value(row, position) for the class of a row.
template <class T, class Value>
void one_class_gradient(const KernelContext& c, const AxisView& view, const int64_t* labels,
                        int64_t ignore, T* outs, const Value& value) {
  const int64_t n = view.n;
  c.tiles().split(view.outer, n, [&](int64_t begin, int64_t end) {
    std::fill(outs + begin * n, outs + end * n, T{});
    for (int64_t i = begin; i < end; ++i) {
      if (labels[i] == ignore) continue;
      const int64_t at = i * n + checked_label(labels[i], n);
      outs[at] = value(i, at);
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
      c.tiles().split(view.outer, 2 * n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          for (int64_t at = i * n; at < (i + 1) * n; ++at) {
            outs[at] = -labels[at] * grads[i] / xs[at];
          }
        }
      });
      return;
    }
    one_class_gradient(c, view, c.in<int64_t>(label), ignore, outs,
                       [=](int64_t i, int64_t at) { return -grads[i] / xs[at]; });
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
    const T* matches = c.in<T>(match);
    const T* grads = c.in<T>(y_grad);
    one_class_gradient(c, view, c.in<int64_t>(label), ignore, c.out<T>(x_grad),
                       [=](int64_t i, int64_t) { return -grads[i] / matches[i]; });
  });
}

// Shifted logits are clipped at -64, as in the system that the programs come from.
template <class T>
T shifted(T x, T largest) {
  return std::max(x - largest, T(-64));
}

// Losses of lines [begin, end) by the class of each; no exponential below the clip counts in a sum
// that is 1 or more.
template <class T>
void class_losses(const AxisView& view, int64_t begin, int64_t end, const T* x,
                  const SoftmaxLine<T>* lines, const int64_t* labels, int64_t ignore, T* losses) {
  for (int64_t i = begin; i < end; ++i) {
    const SoftmaxLine<T>& line = lines[i - begin];
    losses[i] = T{};
    if (labels[i] == ignore) continue;
    const T own = x[view.start(i) + checked_label(labels[i], view.n) * view.inner];
    losses[i] = std::log(line.sum) - shifted(own, line.largest);
  }
}

// The same by soft labels.
template <class T>
void soft_losses(const AxisView& view, int64_t begin, int64_t end, const T* x,
                 const SoftmaxLine<T>* lines, const T* labels, T* losses) {
  if (view.inner == 1) {
    for (int64_t i = begin; i < end; ++i) {
      const T* xs = x + i * view.n;
      const T* weights = labels + i * view.n;
      const T largest = lines[i - begin].largest;
      const T log_sum = std::log(lines[i - begin].sum);
      LaneSum<T> loss;
      loss.add(view.n, [=](int64_t j) { return weights[j] * (log_sum - shifted(xs[j], largest)); });
      losses[i] = loss.total();
    }
    return;
  }
  each_abreast(view, begin, end, [&](int64_t first, int64_t line, int64_t width) {
    T largest[kLinesAbreast];
    T log_sums[kLinesAbreast];
    T sums[kLinesAbreast] = {};
    for (int64_t i = 0; i < width; ++i) {
      largest[i] = lines[line - begin + i].largest;
      log_sums[i] = std::log(lines[line - begin + i].sum);
    }
    for (int64_t j = 0; j < view.n; ++j) {
      const T* xs = x + first + j * view.inner;
      const T* weights = labels + first + j * view.inner;
      for (int64_t i = 0; i < width; ++i) {
        sums[i] += weights[i] * (log_sums[i] - shifted(xs[i], largest[i]));
      }
    }
    std::copy_n(sums, width, losses + line);
  });
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
    T* probabilities = c.out<T>(probability);
    split_lines(view, c.tiles(), kSoftmaxCost, [&](int64_t begin, int64_t end) {
      auto* lines = tile_scratch<SoftmaxLine<T>>(end - begin);
      softmax<T, Simd>(view, begin, end, xs, probabilities, lines);
      if (soft) {
        soft_losses(view, begin, end, xs, lines, c.in<T>(label), losses);
      } else {
        class_losses(view, begin, end, xs, lines, c.in<int64_t>(label), ignore, losses);
      }
    });
  });
}

// The gradient of lines [begin, end): grad * (p - 1 for the class, 0 for others). Lines with an
// ignored label pass nothing back, unless Paddle's form is asked for.
template <class T>
struct ClassGradient {
  AxisView view;
  const T* p;
  const int64_t* labels;
  const T* grads;
  T* out;
  int64_t ignore;
  bool passes_ignored;

  void operator()(int64_t begin, int64_t end) const {
    if (view.inner != 1) return across(begin, end);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * view.n;
      const T grad = grads[i];
      if (drops(i)) {
        std::fill_n(out + first, view.n, T{});
        continue;
      }
      for (int64_t j = first; j < first + view.n; ++j) out[j] = grad * p[j];
      set_own(i, first);
    }
  }

 private:
  bool drops(int64_t line) const { return labels[line] == ignore && !passes_ignored; }

  // The element of the line's class.
  void set_own(int64_t line, int64_t first) const {
    const int64_t label = labels[line];
    if (label == ignore && (label < 0 || label >= view.n)) return;
    const int64_t at = first + checked_label(label, view.n) * view.inner;
    out[at] = grads[line] * (p[at] - T{1});
  }

  void across(int64_t begin, int64_t end) const {
    each_abreast(view, begin, end, [&](int64_t first, int64_t line, int64_t width) {
      for (int64_t j = first; j < first + view.n * view.inner; j += view.inner) {
        for (int64_t i = 0; i < width; ++i) out[j + i] = grads[line + i] * p[j + i];
      }
      for (int64_t i = 0; i < width; ++i) {
        if (!drops(line + i)) {
          set_own(line + i, first + i);
          continue;
        }
        for (int64_t j = 0; j < view.n; ++j) out[first + i + j * view.inner] = T{};
      }
    });
  }
};

// grad * (p - label) for lines [begin, end).
template <class T>
void soft_gradient(const AxisView& view, int64_t begin, int64_t end, const T* p, const T* labels,
                   const T* grads, T* out) {
  if (view.inner == 1) {
    for (int64_t i = begin; i < end; ++i) {
      const T grad = grads[i];
      for (int64_t j = i * view.n; j < (i + 1) * view.n; ++j) out[j] = grad * (p[j] - labels[j]);
    }
    return;
  }
  each_abreast(view, begin, end, [&](int64_t first, int64_t line, int64_t width) {
    for (int64_t j = first; j < first + view.n * view.inner; j += view.inner) {
      for (int64_t i = 0; i < width; ++i) {
        out[j + i] = grads[line + i] * (p[j + i] - labels[j + i]);
      }
    }
  });
}

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
    split_lines(view, c.tiles(), 1, [&](int64_t begin, int64_t end) {
      if (soft) return soft_gradient(view, begin, end, ps, c.in<T>(label), grads, outs);
      ClassGradient<T>{view, ps, c.in<int64_t>(label), grads, outs, ignore, ordinary}(begin, end);
    });
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
