// Norms and angles (fluid/ops/math/similarity.h has the formulas).
#include "fluid/kernels/math/similarity.h"

#include <algorithm>
#include <cmath>

#include "fluid/kernels/cpu/math/lines.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

// Of an element of a sum that is one chain, in elements of a simple loop.
constexpr int64_t kChainCost = 4;

// f(line) for all lines, in tiles.
template <class F>
void each_line(const KernelContext& c, const AxisView& view, const F& f) {
  split_lines(view, c.tiles(), kChainCost, [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) f(line);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_norm(PrepareContext& context) {
  const LineNorm l = norm_of(context, dtype_of<T>());
  const AxisView view = l.lines;
  return make_prepared([=, epsilon = static_cast<T>(l.epsilon)](const KernelContext& c) {
    const T* xs = c.in<T>(l.x);
    each_line(c, view, [&](int64_t line) {
      const int64_t start = view.start(line);
      T sum{};
      for (int64_t j = 0; j < view.n; ++j) {
        const T value = xs[start + j * view.inner];
        sum += value * value;
      }
      const T length = std::sqrt(sum + epsilon);
      if (l.norm >= 0) c.out<T>(l.norm)[line] = length;
      for (int64_t j = 0; l.out >= 0 && j < view.n; ++j) {
        const int64_t at = start + j * view.inner;
        c.out<T>(l.out)[at] = xs[at] / length;
      }
    });
  });
}

// dx = (g - x (g x) / |x|^2) / |x|
template <class T>
std::unique_ptr<Prepared> prepare_norm_grad(PrepareContext& context) {
  const LineNorm l = norm_back_of(context, dtype_of<T>());
  const AxisView view = l.lines;
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(l.x);
    const T* gs = c.in<T>(l.grad);
    T* outs = c.out<T>(l.out);
    each_line(c, view, [&](int64_t line) {
      const int64_t start = view.start(line);
      const T length = c.in<T>(l.norm)[line];
      T dot{};
      for (int64_t j = 0; j < view.n; ++j) {
        dot += gs[start + j * view.inner] * xs[start + j * view.inner];
      }
      const T along = dot / (length * length);
      for (int64_t j = 0; j < view.n; ++j) {
        const int64_t at = start + j * view.inner;
        outs[at] = (gs[at] - xs[at] * along) / length;
      }
    });
  });
}

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum{};
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
T norm_of_row(const T* a, int64_t n) {
  return std::sqrt(dot(a, a, n));
}

template <class T>
std::unique_ptr<Prepared> prepare_cos_sim(PrepareContext& context) {
  const CosineRows r = cosine_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T shared_length = r.shared ? norm_of_row(c.in<T>(r.y), r.length) : T{};
    if (r.shared && r.y_norm >= 0) c.out<T>(r.y_norm)[0] = shared_length;
    c.tiles().split(r.rows, 3 * kChainCost * r.length, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* xs = c.in<T>(r.x) + row * r.length;
        const T* ys = c.in<T>(r.y) + r.y_row(row) * r.length;
        const T x_length = norm_of_row(xs, r.length);
        const T y_length = r.shared ? shared_length : norm_of_row(ys, r.length);
        if (r.x_norm >= 0) c.out<T>(r.x_norm)[row] = x_length;
        if (r.y_norm >= 0 && !r.shared) c.out<T>(r.y_norm)[row] = y_length;
        if (r.cosine >= 0) c.out<T>(r.cosine)[row] = dot(xs, ys, r.length) / (x_length * y_length);
      }
    });
  });
}

// What the gradients of a row of X and of its row of Y are made of.
template <class T>
struct CosineOfRow {
  const T* x;
  const T* y;
  T x_norm;
  T y_norm;
  T cosine;
  T grad;

  CosineOfRow(const KernelContext& c, const CosineRows& r, int64_t row)
      : x(c.in<T>(r.x) + row * r.length),
        y(c.in<T>(r.y) + r.y_row(row) * r.length),
        x_norm(c.in<T>(r.x_norm)[row]),
        y_norm(c.in<T>(r.y_norm)[r.y_row(row)]),
        cosine(c.in<T>(r.cosine)[row]),
        grad(c.in<T>(r.grad)[row]) {}
};

// Adds g d(cos) / da, for elements [first, last) of a, where cos = a b / (|a| |b|).
template <class T>
void add_cosine_gradient(const T* a, const T* b, T a_norm, T b_norm, T cosine, T g, int64_t first,
                         int64_t last, T* out) {
  const T cross = g / (a_norm * b_norm);
  const T own = g * cosine / (a_norm * a_norm);
  for (int64_t i = first; i < last; ++i) out[i - first] += cross * b[i] - own * a[i];
}

// To the row of Y that is there for all rows of X.
template <class T>
void cosine_gradient_of_shared(const KernelContext& c, const CosineRows& r) {
  sum_columns(c.tiles(), r.rows, r.length, 2, c.out<T>(r.y_grad),
              [&](int64_t begin, int64_t end, int64_t first, int64_t last, T* to) {
                for (int64_t row = begin; row < end; ++row) {
                  const CosineOfRow<T> of(c, r, row);
                  add_cosine_gradient(of.y, of.x, of.y_norm, of.x_norm, of.cosine, of.grad, first,
                                      last, to);
                }
              });
}

template <class T>
std::unique_ptr<Prepared> prepare_cos_sim_grad(PrepareContext& context) {
  const CosineRows r = cosine_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* x_out = r.x_grad >= 0 ? c.out<T>(r.x_grad) : nullptr;
    T* y_out = r.y_grad >= 0 && !r.shared ? c.out<T>(r.y_grad) : nullptr;
    c.tiles().split(r.rows, 4 * r.length, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * r.length;
      const int64_t last = end * r.length;
      if (x_out != nullptr) std::fill(x_out + first, x_out + last, T{});
      if (y_out != nullptr) std::fill(y_out + first, y_out + last, T{});
      for (int64_t row = begin; row < end; ++row) {
        const CosineOfRow<T> of(c, r, row);
        const int64_t at = row * r.length;
        if (x_out != nullptr) {
          add_cosine_gradient(of.x, of.y, of.x_norm, of.y_norm, of.cosine, of.grad, 0, r.length,
                              x_out + at);
        }
        if (y_out != nullptr) {
          add_cosine_gradient(of.y, of.x, of.y_norm, of.x_norm, of.cosine, of.grad, 0, r.length,
                              y_out + at);
        }
      }
    });
    if (r.shared && r.y_grad >= 0) cosine_gradient_of_shared<T>(c, r);
  });
}

}  // namespace

void register_similarity(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add("norm", prepare_norm<T>);
    add("norm_grad", prepare_norm_grad<T>);
    add("cos_sim", prepare_cos_sim<T>);
    add("cos_sim_grad", prepare_cos_sim_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
