#include "fluid/kernels/cuda/math/reduce_impl.h"
#include "fluid/kernels/cuda/math/similarity_loops.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
struct LineNormLoop {
  Rows rows;
  T epsilon;
  const T* x;
  T* norm;
  T* out;
  template <class Team>
  __device__ void row(int64_t row) const {
    const int64_t base = row / rows.inner * rows.n * rows.inner + row % rows.inner;
    T sum{};
    for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
      const T value = x[base + j * rows.inner];
      sum += value * value;
    }
    const T length = sqrt(sum_of_team<Team>(sum) + epsilon);
    if (norm != nullptr && team_thread<Team>() == 0) norm[row] = length;
    if (out == nullptr) return;
    for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
      out[base + j * rows.inner] = x[base + j * rows.inner] / length;
    }
  }
};

template <class T>
struct LineNormBackLoop {
  Rows rows;
  const T* x;
  const T* norm;
  const T* grad;
  T* out;
  template <class Team>
  __device__ void row(int64_t row) const {
    const int64_t base = row / rows.inner * rows.n * rows.inner + row % rows.inner;
    T dot{};
    for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
      dot += grad[base + j * rows.inner] * x[base + j * rows.inner];
    }
    const T length = norm[row];
    const T along = sum_of_team<Team>(dot) / (length * length);
    for (int64_t j = team_thread<Team>(); j < rows.n; j += Team::kSize) {
      const int64_t at = base + j * rows.inner;
      out[at] = (grad[at] - x[at] * along) / length;
    }
  }
};

template <class T>
struct Products {
  T xx;
  T yy;
  T xy;
};

template <class T>
struct CosineLoop {
  CosineDims dims;
  const T* x;
  const T* y;
  T* out;
  T* x_norm;
  T* y_norm;
  template <class Team>
  __device__ void row(int64_t row) const {
    const T* xs = x + row * dims.length;
    const T* ys = y + (dims.shared ? 0 : row * dims.length);
    Products<T> sums = {};
    for (int64_t j = team_thread<Team>(); j < dims.length; j += Team::kSize) {
      sums.xx += xs[j] * xs[j];
      sums.yy += ys[j] * ys[j];
      sums.xy += xs[j] * ys[j];
    }
    sums = Team::combine(sums, [](const Products<T>& a, const Products<T>& b) {
      return Products<T>{a.xx + b.xx, a.yy + b.yy, a.xy + b.xy};
    });
    if (team_thread<Team>() != 0) return;
    const T x_length = sqrt(sums.xx);
    const T y_length = sqrt(sums.yy);
    if (x_norm != nullptr) x_norm[row] = x_length;
    if (y_norm != nullptr && (!dims.shared || row == 0)) y_norm[row] = y_length;
    if (out != nullptr) out[row] = sums.xy / (x_length * y_length);
  }
};

// Of one operand, a, and the other: g d(cos) / da for cos = a b / (|a| |b|).
template <class T>
struct CosineTerm {
  int64_t length;
  const T* a;
  const T* a_norm;
  bool a_shared;
  const T* b;
  const T* b_norm;
  bool b_shared;
  const T* cosine;
  const T* grad;
  __device__ T operator()(int64_t i) const {
    const int64_t row = i / length;
    const int64_t k = i % length;
    const T a_length = a_norm[a_shared ? 0 : row];
    const T cross = grad[row] / (a_length * b_norm[b_shared ? 0 : row]);
    const T own = grad[row] * cosine[row] / (a_length * a_length);
    return cross * b[b_shared ? k : i] - own * a[a_shared ? k : i];
  }
};
template <class T>
struct CosineBackLoop {
  CosineTerm<T> term;
  T* out;
  __device__ T element(int64_t i) const { return term(i); }
};

// A sum over rows for each element of one.
SumDims sum_of_rows(const CosineDims& dims) {
  SumDims sums;
  sums.kept_rank = sums.gone_rank = 1;
  sums.results = sums.kept_size[0] = dims.length;
  sums.kept_step[0] = 1;
  sums.terms = sums.gone_size[0] = dims.rows;
  sums.gone_step[0] = dims.length;
  return sums;
}

}  // namespace

template <class T>
void line_norm(RawStream stream, const Rows& rows, T epsilon, const T* x, T* norm, T* out) {
  launch_rows(stream, "line_norm", rows.outer * rows.inner, rows.n,
              LineNormLoop<T>{rows, epsilon, x, norm, out});
}
template <class T>
void line_norm_back(RawStream stream, const Rows& rows, const T* x, const T* norm, const T* grad,
                    T* out) {
  launch_rows(stream, "line_norm_back", rows.outer * rows.inner, rows.n,
              LineNormBackLoop<T>{rows, x, norm, grad, out});
}

template <class T>
void cosine(RawStream stream, const CosineDims& dims, const T* x, const T* y, T* out, T* x_norm,
            T* y_norm) {
  // Without a row of X no team comes to that of Y.
  if (dims.rows == 0 && dims.shared && y_norm != nullptr) {
    line_norm<T>(stream, {.outer = 1, .n = dims.length, .inner = 1}, T{}, y, y_norm, nullptr);
  }
  launch_rows(stream, "cosine", dims.rows, dims.length,
              CosineLoop<T>{dims, x, y, out, x_norm, y_norm});
}

int64_t cosine_partials(const CosineDims& dims) {
  return dims.shared ? reduce_partials(sum_of_rows(dims)) : 0;
}

template <class T>
void cosine_back(RawStream stream, const CosineDims& dims, const CosineBack<T>& args, T* partial) {
  const CosineTerm<T> of_x = {dims.length, args.x,      args.x_norm, false,    args.y,
                              args.y_norm, dims.shared, args.cosine, args.grad};
  const CosineTerm<T> of_y = {dims.length, args.y, args.y_norm, dims.shared, args.x,
                              args.x_norm, false,  args.cosine, args.grad};
  const int64_t n = dims.rows * dims.length;
  if (args.x_grad != nullptr) {
    launch_each(stream, "cosine_back", n, CosineBackLoop<T>{of_x, args.x_grad});
  }
  if (args.y_grad == nullptr) return;
  if (dims.shared) {
    launch_reduce<T, SumOf>(stream, "cosine_back", sum_of_rows(dims), of_y, T{1}, partial,
                            args.y_grad);
  } else {
    launch_each(stream, "cosine_back", n, CosineBackLoop<T>{of_y, args.y_grad});
  }
}

#define FLEET_INSTANTIATE(T)                                                              \
  template void line_norm(RawStream, const Rows&, T, const T*, T*, T*);                   \
  template void line_norm_back(RawStream, const Rows&, const T*, const T*, const T*, T*); \
  template void cosine(RawStream, const CosineDims&, const T*, const T*, T*, T*, T*);     \
  template void cosine_back(RawStream, const CosineDims&, const CosineBack<T>&, T*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
