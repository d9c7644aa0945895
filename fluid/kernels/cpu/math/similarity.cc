// Norms and angles (fluid/ops/math/similarity.h has the formulas).
#include "fluid/kernels/math/similarity.h"

#include <algorithm>
#include <cmath>

#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_norm(PrepareContext& context) {
  const LineNorm l = norm_of(context, dtype_of<T>());
  const AxisView view = l.lines;
  return make_prepared([=, epsilon = static_cast<T>(l.epsilon)](const KernelContext& c) {
    const T* xs = c.in<T>(l.x);
    for (int64_t line = 0; line < view.lines(); ++line) {
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
    }
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
    for (int64_t line = 0; line < view.lines(); ++line) {
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
    }
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
    // Y may have a row, and X none.
    if (r.y_norm >= 0 && r.rows < r.y_rows()) {
      c.out<T>(r.y_norm)[0] = norm_of_row(c.in<T>(r.y), r.length);
    }
    for (int64_t row = 0; row < r.rows; ++row) {
      const T* xs = c.in<T>(r.x) + row * r.length;
      const T* ys = c.in<T>(r.y) + r.y_row(row) * r.length;
      const T x_length = norm_of_row(xs, r.length);
      const T y_length = norm_of_row(ys, r.length);
      if (r.x_norm >= 0) c.out<T>(r.x_norm)[row] = x_length;
      if (r.y_norm >= 0) c.out<T>(r.y_norm)[r.y_row(row)] = y_length;
      if (r.cosine >= 0) c.out<T>(r.cosine)[row] = dot(xs, ys, r.length) / (x_length * y_length);
    }
  });
}

// Adds g d(cos) / da for cos = a b / (|a| |b|).
template <class T>
void add_cosine_gradient(const T* a, const T* b, T a_norm, T b_norm, T cosine, T g, int64_t n,
                         T* out) {
  const T cross = g / (a_norm * b_norm);
  const T own = g * cosine / (a_norm * a_norm);
  for (int64_t i = 0; i < n; ++i) out[i] += cross * b[i] - own * a[i];
}

template <class T>
std::unique_ptr<Prepared> prepare_cos_sim_grad(PrepareContext& context) {
  const CosineRows r = cosine_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* x_out = r.x_grad >= 0 ? c.out<T>(r.x_grad) : nullptr;
    T* y_out = r.y_grad >= 0 ? c.out<T>(r.y_grad) : nullptr;
    if (x_out != nullptr) std::fill(x_out, x_out + r.rows * r.length, T{});
    if (y_out != nullptr) std::fill(y_out, y_out + r.y_rows() * r.length, T{});
    for (int64_t row = 0; row < r.rows; ++row) {
      const int64_t other = r.y_row(row);
      const T* xs = c.in<T>(r.x) + row * r.length;
      const T* ys = c.in<T>(r.y) + other * r.length;
      const T a = c.in<T>(r.x_norm)[row];
      const T b = c.in<T>(r.y_norm)[other];
      const T value = c.in<T>(r.cosine)[row];
      const T g = c.in<T>(r.grad)[row];
      if (x_out != nullptr) {
        add_cosine_gradient(xs, ys, a, b, value, g, r.length, x_out + row * r.length);
      }
      if (y_out != nullptr) {
        add_cosine_gradient(ys, xs, b, a, value, g, r.length, y_out + other * r.length);
      }
    }
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
