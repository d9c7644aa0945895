// Norms and angles (fluid/ops/math/similarity.h has the formulas).
#include "fluid/ops/math/similarity.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "fluid/kernels/cpu/loss/softmax.h"
#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_norm(PrepareContext& context) {
  const auto attrs = context.attrs<NormAttrs>();
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, attrs.axis);
  Shape norm_shape = shape;
  norm_shape.set(attrs.axis, 1);
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  const int norm = context.set_output("Norm", norm_shape, dtype_of<T>());
  return make_prepared([=, epsilon = static_cast<T>(attrs.epsilon)](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    for (int64_t line = 0; line < view.outer * view.inner; ++line) {
      const int64_t start = line / view.inner * view.n * view.inner + line % view.inner;
      T sum{};
      for (int64_t j = 0; j < view.n; ++j) {
        const T value = xs[start + j * view.inner];
        sum += value * value;
      }
      const T length = std::sqrt(sum + epsilon);
      if (norm >= 0) c.out<T>(norm)[line] = length;
      for (int64_t j = 0; out >= 0 && j < view.n; ++j) {
        const int64_t at = start + j * view.inner;
        c.out<T>(out)[at] = xs[at] / length;
      }
    }
  });
}

// dx = (g - x (g x) / |x|^2) / |x|
template <class T>
std::unique_ptr<Prepared> prepare_norm_grad(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const AxisView view(shape, context.attrs<NormAttrs>().axis);
  context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  context.require(context.in("Norm").shape.numel() == view.outer * view.inner, "Norm",
                  str_cat(view.outer * view.inner, " elements"),
                  context.in("Norm").shape.to_string());
  const int x = context.input("X");
  const int norm = context.input("Norm");
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* gs = c.in<T>(grad);
    T* outs = c.out<T>(out);
    for (int64_t line = 0; line < view.outer * view.inner; ++line) {
      const int64_t start = line / view.inner * view.n * view.inner + line % view.inner;
      const T length = c.in<T>(norm)[line];
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

// Rows of X against rows of Y, of which there may be one for all.
struct Rows {
  int64_t rows = 0;
  int64_t length = 0;
  bool shared = false;
  int x = -1;
  int y = -1;

  int64_t y_row(int64_t row) const { return shared ? 0 : row; }
};

Rows rows_of(const PrepareContext& context) {
  const Shape& x = context.in("X").shape;
  const Shape& y = context.in("Y").shape;
  context.require(x.rank() >= 2, "X", "[n, ...]", x.to_string());
  const int64_t length = x.numel(1, x.rank());
  const bool fits =
      y.rank() == x.rank() && y.numel(1, y.rank()) == length && (y[0] == x[0] || y[0] == 1);
  context.require(fits, "Y", str_cat(x, ", or one row of it"), y.to_string());
  return {x[0], length, y[0] == 1 && x[0] != 1, context.input("X"), context.input("Y")};
}

template <class T>
T dot(const T* a, const T* b, int64_t n) {
  T sum{};
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
std::unique_ptr<Prepared> prepare_cos_sim(PrepareContext& context) {
  const Rows r = rows_of(context);
  const int64_t y_rows = context.in("Y").shape[0];
  const int out = context.set_output("Out", Shape{r.rows, 1}, dtype_of<T>());
  const int x_norm = context.set_output("XNorm", Shape{r.rows, 1}, dtype_of<T>());
  const int y_norm = context.set_output("YNorm", Shape{y_rows, 1}, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    for (int64_t row = 0; row < r.rows; ++row) {
      const T* xs = c.in<T>(r.x) + row * r.length;
      const T* ys = c.in<T>(r.y) + r.y_row(row) * r.length;
      const T x_length = std::sqrt(dot(xs, xs, r.length));
      const T y_length = std::sqrt(dot(ys, ys, r.length));
      if (x_norm >= 0) c.out<T>(x_norm)[row] = x_length;
      if (y_norm >= 0) c.out<T>(y_norm)[r.y_row(row)] = y_length;
      if (out >= 0) c.out<T>(out)[row] = dot(xs, ys, r.length) / (x_length * y_length);
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
  const Rows r = rows_of(context);
  for (const char* slot : {"Out", "XNorm", "Out@GRAD"}) {
    context.require(context.in(slot).shape.numel() == r.rows, slot, str_cat(r.rows, " elements"),
                    context.in(slot).shape.to_string());
  }
  const int cosine = context.input("Out");
  const int x_norm = context.input("XNorm");
  const int y_norm = context.input("YNorm");
  const int grad = context.input("Out@GRAD");
  const int64_t y_rows = context.in("Y").shape[0];
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", context.in("Y").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* x_out = x_grad >= 0 ? c.out<T>(x_grad) : nullptr;
    T* y_out = y_grad >= 0 ? c.out<T>(y_grad) : nullptr;
    if (x_out != nullptr) std::fill(x_out, x_out + r.rows * r.length, T{});
    if (y_out != nullptr) std::fill(y_out, y_out + y_rows * r.length, T{});
    for (int64_t row = 0; row < r.rows; ++row) {
      const int64_t other = r.y_row(row);
      const T* xs = c.in<T>(r.x) + row * r.length;
      const T* ys = c.in<T>(r.y) + other * r.length;
      const T a = c.in<T>(x_norm)[row];
      const T b = c.in<T>(y_norm)[other];
      const T value = c.in<T>(cosine)[row];
      const T g = c.in<T>(grad)[row];
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
