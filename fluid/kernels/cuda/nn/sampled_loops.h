// Losses that look at a few of many classes; conventions of fluid/kernels/cuda/loops.h.
#pragma once

#include "fluid/kernels/cuda/loops.h"
#include "fluid/kernels/functions/sampled.h"

namespace fleet::fluid::cuda {

// `samples` classes for each row; those outside of [0, count) are none.
struct ClassRows {
  int64_t rows = 0;
  int64_t samples = 0;
  int64_t width = 0;
  int64_t count = 0;
  const int64_t* classes = nullptr;
  int64_t all() const { return rows * samples; }
};

// x w[class] + bias[class] for each sample, NaN for a class that is none. `bias` may be null.
template <class T>
void class_logits(RawStream stream, const ClassRows& rows, const T* x, const T* w, const T* bias,
                  T* out);
// `slopes` are the gradients of the logits. x_grad[row] is the sum of slopes[s] * w[class of s]
// over the samples s of the row.
template <class T>
void class_rows_back(RawStream stream, const ClassRows& rows, const T* slopes, const T* w,
                     T* x_grad);
// terms[s] = slopes[s] * x[row of s], to be added to w_grad[class of s].
template <class T>
void class_terms(RawStream stream, const ClassRows& rows, const T* slopes, const T* x, T* terms);

struct NceArgs {
  functions::NoiseClasses noise;
  int64_t labels = 0;  // of each row, in front of its noise
  int64_t samples = 0;
};
// `custom` null: classes are drawn.
struct NceDraw {
  RandomKey key;
  uint64_t word = 0;
  const int64_t* labels = nullptr;
  const int32_t* custom = nullptr;
};
void nce_draw(RawStream stream, const NceArgs& args, const NceDraw& draw, int64_t rows,
              int64_t* classes);
// Logits become their sigmoids; `weight`, one of each row, may be null.
template <class T>
void nce_costs(RawStream stream, const NceArgs& args, const ClassRows& rows, const T* weight,
               T* logits, T* cost);
template <class T>
void nce_slopes(RawStream stream, const NceArgs& args, const ClassRows& rows, const T* sigmoids,
                const T* weight, const T* grad, T* slopes);

// The node of each place of each path; -1 behind its end, and for a number that is no node.
void tree_nodes(RawStream stream, const functions::TreePaths& paths, int64_t rows, int64_t nodes,
                int64_t* out);
// `unused` is added for each place behind the end of a path. A row with a label that is no class,
// or with a node that is none, is NaN.
template <class T>
void tree_losses(RawStream stream, const functions::TreePaths& paths, const ClassRows& nodes,
                 const T* logits, T unused, T* pre_out, T* out);
template <class T>
void tree_slopes(RawStream stream, const functions::TreePaths& paths, const ClassRows& nodes,
                 const T* pre_out, const T* grad, T* slopes);

}  // namespace fleet::fluid::cuda
