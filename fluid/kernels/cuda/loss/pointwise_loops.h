// Losses whose element i is made of element i of their inputs; conventions of
// fluid/kernels/cuda/loops.h, formulas of fluid/ops/loss/regression_loss.h.
#pragma once

#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

// `grad` null: the loss, else its gradient for x. `divisor` null: 1. Labels that are `ignore`, cut
// to a whole number, cost nothing.
template <class T>
void sigmoid_loss(RawStream stream, T ignore, const T* divisor, const T* x, const T* label,
                  const T* grad, T* out, int64_t n);
// *out = the number of labels that count, or 1e-5. `partial` has count_partials(n) elements.
int64_t count_partials(int64_t n);
template <class T>
void count_labels(RawStream stream, T ignore, const T* label, int64_t n, T* partial, T* out);

template <class T>
void log_loss(RawStream stream, T epsilon, const T* predicted, const T* label, const T* grad,
              T* out, int64_t n);
template <class T>
void hinge_loss(RawStream stream, const T* logits, const T* label, const T* grad, T* out,
                int64_t n);

// Outputs may be null.
template <class T>
void huber_loss(RawStream stream, T delta, const T* x, const T* y, T* residual, T* out, int64_t n);
template <class T>
void huber_back(RawStream stream, T delta, const T* residual, const T* grad, T* x_grad, T* y_grad,
                int64_t n);

}  // namespace fleet::fluid::cuda
