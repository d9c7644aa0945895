// Sequences on the device; conventions of fluid/kernels/cuda/loops.h.
#pragma once

#include "fluid/kernels/cuda/loops.h"
#include "fluid/kernels/sequence/pool.h"

namespace fleet::fluid::cuda {

// Rows of `width` elements; sequence i has those from offsets[i] to offsets[i + 1].
struct SequenceRows {
  const int64_t* offsets = nullptr;
  int64_t count = 0;  // of sequences
  int64_t width = 0;
};

// `index`, which may be null: the rows that kMax took, -1 for empty sequences, which become `pad`.
template <class T>
void pool_sequences(RawStream stream, SequencePool pool, const SequenceRows& rows, const T* x,
                    T pad, T* out, int32_t* index);
// `index` is what kMax took. x_grad is zeros where pool is no sum.
template <class T>
void pool_sequences_back(RawStream stream, SequencePool pool, const SequenceRows& rows,
                         const T* grad, const int32_t* index, T* x_grad);

// Over each sequence; width is 1.
template <class T>
void sequence_softmax(RawStream stream, const SequenceRows& rows, const T* x, T* out);
template <class T>
void sequence_softmax_back(RawStream stream, const SequenceRows& rows, const T* out, const T* grad,
                           T* x_grad);

}  // namespace fleet::fluid::cuda
