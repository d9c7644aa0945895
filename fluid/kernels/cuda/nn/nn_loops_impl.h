// Normalisation, pooling and dropout; conventions of fluid/kernels/cuda/loops.h.
#pragma once

#include <cstddef>

#include "fluid/kernels/cuda/halves_impl.h"
#include "fluid/kernels/cuda/loops.h"
#include "fluid/kernels/nn/channels.h"
#include "fluid/kernels/nn/norm_rows.h"
#include "fluid/kernels/nn/pool_windows.h"

namespace fleet::fluid::cuda {

// layer_norm and group_norm. scale and bias may be null; mean and variance have one element a row.
template <class T>
struct RowNormArgs {
  NormRows rows;
  T epsilon{};
  const T* scale = nullptr;
  const T* bias = nullptr;
};
template <class T>
void row_norm(RawStream stream, const RowNormArgs<T>& args, const T* x, T* y, T* mean, T* variance);

// From x and mean, or where x is null from y. Outputs may be null. `partial` has
// row_norm_partials(rows) elements.
template <class T>
struct RowNormBack {
  const T* x = nullptr;
  const T* y = nullptr;
  const T* mean = nullptr;
  const T* variance = nullptr;
  const T* grad = nullptr;
  T* x_grad = nullptr;
  T* scale_grad = nullptr;
  T* bias_grad = nullptr;
};
int64_t row_norm_partials(const NormRows& rows);
template <class T>
void row_norm_back(RawStream stream, const RowNormArgs<T>& args, const RowNormBack<T>& back,
                   T* partial);

int64_t channel_partials(const Channels& dims);

// Of each channel: its mean, 1 / sqrt(its variance + epsilon), and the averages that move, which
// may be null: momentum times what was before, plus the rest times what is now.
template <class T>
struct ChannelMoments {
  T* mean = nullptr;
  T* inverse = nullptr;
  T epsilon{};
  float momentum = 0;
  const float* momentum_tensor = nullptr;  // replaces momentum
  const T* mean_before = nullptr;
  const T* variance_before = nullptr;
  T* mean_out = nullptr;
  T* variance_out = nullptr;
};
// `memory` has moments_bytes(dims). Sums are in double precision. Images of halves (X) have
// channels of float32 (T), here and below.
int64_t moments_bytes(const Channels& dims);
template <class X, class T>
void channel_moments(RawStream stream, const Channels& dims, const X* x,
                     const ChannelMoments<T>& moments, std::byte* memory);
// y = (x - mean) * inverse * scale + bias, where inverse is 1 / sqrt(variance + epsilon).
template <class T>
struct ChannelNorm {
  const T* mean = nullptr;
  const T* inverse = nullptr;
  const T* scale = nullptr;
  const T* bias = nullptr;
};
template <class X, class T>
void channel_norm(RawStream stream, const Channels& dims, const ChannelNorm<T>& norm, const X* x,
                  X* y);
// out = 1 / sqrt(variance + epsilon), which may be `variance`.
template <class T>
void inverse_deviation(RawStream stream, int64_t n, T epsilon, const T* variance, T* out);

// Of channel_norm. `fixed`: mean and inverse do not
// depend on x. Outputs may be null; `sums` has 2 * count elements, `partial` twice
// channel_partials(dims).
template <class X, class T>
struct ChannelNormBack {
  const X* x = nullptr;
  const X* grad = nullptr;
  const T* mean = nullptr;
  const T* inverse = nullptr;
  const T* scale = nullptr;
  bool fixed = false;
  X* x_grad = nullptr;
  T* scale_grad = nullptr;
  T* bias_grad = nullptr;
};
template <class X, class T>
void channel_norm_back(RawStream stream, const Channels& dims, const ChannelNormBack<X, T>& back,
                       T* partial, T* sums);

struct PoolDims {
  WindowAxis rows;
  WindowAxis columns;
  bool adaptive = false;
  bool exclusive = true;
  int64_t planes = 0;
  int64_t lanes = 1;
};
template <class T>
void pool(RawStream stream, const PoolDims& dims, bool max, const T* x, T* out);
// The first largest element of a window gets its gradient; of averages each its share.
template <class T>
void pool_back(RawStream stream, const PoolDims& dims, bool max, const T* x, const T* out,
               const T* grad, T* x_grad);

// mask[i] = 1 where word i of the stream is not below the threshold, else 0; out = x * factor
// there, else 0.
// The stream is that of a step and a shard; a step in the device's memory replaces the number.
struct DropoutArgs {
  RandomKey key;
  uint64_t step = 0;
  const uint64_t* step_memory = nullptr;
  uint64_t shard = 0;
  uint64_t threshold = 0;
};
template <class T>
void dropout(RawStream stream, const DropoutArgs& args, Computed<T> factor, const T* x,
             uint8_t* mask, T* out, int64_t n);
// out = x * factor where the mask is set, else 0.
template <class T>
void keep_masked(RawStream stream, const uint8_t* mask, Computed<T> factor, const T* x, T* out,
                 int64_t n);

// The k largest of each row in falling order, equal ones in the order of their indices,
// not-a-number last.
template <class T>
void top_k(RawStream stream, int64_t rows, int64_t n, int64_t k, const T* x, T* out,
           int64_t* indices);
template <class T>
void top_k_back(RawStream stream, int64_t rows, int64_t n, int64_t k, const int64_t* indices,
                const T* grad, T* out);
// Rows whose label is among their k indices. Outputs may be null.
void accuracy(RawStream stream, int64_t rows, int64_t k, const int64_t* indices,
              const int64_t* labels, float* share, int32_t* correct, int32_t* total);

}  // namespace fleet::fluid::cuda
