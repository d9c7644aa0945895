// Losses that compare values; conventions of fluid/kernels/cuda/loops.h, formulas of
// fluid/ops/loss/regression_loss.h.
#pragma once

#include "fluid/kernels/cuda/loops.h"
#include "fluid/kernels/functions/losses.h"

namespace fleet::fluid::cuda {

// `grad` null: the loss, else its gradient for x. `divisor` null: 1. Labels that are `ignore`, cut
// to a whole number, cost nothing.
template <class T>
void sigmoid_loss(RawStream stream, T ignore, const T* divisor, const T* x, const T* label,
                  const T* grad, T* out, int64_t n);
// Elements that sums of n need beside their result.
int64_t loss_partials(int64_t n);
// *out = the number of labels that count, or 1e-5. `partial` has loss_partials(n) elements.
template <class T>
void count_labels(RawStream stream, T ignore, const T* label, int64_t n, T* partial, T* out);

// A loss that is made element by element.
template <class T, class F>
void element_loss(RawStream stream, const F& f, const functions::LossArrays<T, F>& arrays,
                  int64_t n);

// `grad` has an element for all, whose quotient by `divisor` counts, or (each) one for each.
template <class T>
void kldiv_back(RawStream stream, const T* target, const T* grad, T divisor, bool each, T* out,
                int64_t n);
template <class T>
void kldiv(RawStream stream, const T* x, const T* target, T* out, int64_t n);
// The sum of all, over `divisor`. `partial` has loss_partials(n) elements.
template <class T>
void kldiv_sum(RawStream stream, const T* x, const T* target, T divisor, T* partial, T* out,
               int64_t n);

// out = (1 - epsilon) x + epsilon * prior, or + epsilon / classes.
template <class T>
void label_smooth(RawStream stream, T epsilon, int64_t classes, const T* x, const T* prior, T* out,
                  int64_t n);

// Rows of `length` elements. Weights may be null, and so may outputs.
template <class T>
struct SmoothL1Args {
  int64_t rows = 0;
  int64_t length = 0;
  T sigma2{};
  const T* inside = nullptr;
  const T* outside = nullptr;
};
template <class T>
void smooth_l1_loss(RawStream stream, const SmoothL1Args<T>& args, const T* x, const T* y,
                    T* difference, T* out);
template <class T>
void smooth_l1_back(RawStream stream, const SmoothL1Args<T>& args, const T* difference,
                    const T* grad, T* x_grad, T* y_grad);

// A label that is no class makes its row NaN.
template <class T>
void bpr_loss(RawStream stream, int64_t rows, int64_t classes, const T* x, const int64_t* label,
              T* out);
template <class T>
void bpr_back(RawStream stream, int64_t rows, int64_t classes, const T* x, const int64_t* label,
              const T* grad, T* out);

}  // namespace fleet::fluid::cuda
