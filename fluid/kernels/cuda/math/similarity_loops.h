// Norms and angles; conventions of fluid/kernels/cuda/loops.h. Outputs may be null.
#pragma once

#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

// norm = sqrt(sum x^2 + epsilon) of each row; out = x / norm.
template <class T>
void line_norm(RawStream stream, const Rows& rows, T epsilon, const T* x, T* norm, T* out);
template <class T>
void line_norm_back(RawStream stream, const Rows& rows, const T* x, const T* norm, const T* grad,
                    T* out);

// Rows of `length` elements; with `shared` one row of y is for all.
struct CosineDims {
  int64_t rows = 0;
  int64_t length = 0;
  bool shared = false;
};
template <class T>
void cosine(RawStream stream, const CosineDims& dims, const T* x, const T* y, T* out, T* x_norm,
            T* y_norm);

template <class T>
struct CosineBack {
  const T* x = nullptr;
  const T* y = nullptr;
  const T* x_norm = nullptr;
  const T* y_norm = nullptr;
  const T* cosine = nullptr;
  const T* grad = nullptr;
  T* x_grad = nullptr;
  T* y_grad = nullptr;
};
// Elements of memory that cosine_back needs.
int64_t cosine_partials(const CosineDims& dims);
template <class T>
void cosine_back(RawStream stream, const CosineDims& dims, const CosineBack<T>& args, T* partial);

}  // namespace fleet::fluid::cuda
