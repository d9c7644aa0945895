// Elementwise functions of one tensor; conventions of fluid/kernels/cuda/loops.h.
#pragma once

#include "fluid/kernels/cuda/loops.h"
#include "fluid/kernels/functions/activations.h"

namespace fleet::fluid::cuda {

// An op with its value of X, and its derivative times `grad` in terms of X or of Out, whichever its
// gradient op has.
template <class T>
struct UnaryFunction {
  const char* op;
  void (*value)(RawStream, UnaryParams, const T* x, T* out, int64_t n);
  // Null: the op has no gradient op of its own.
  void (*back)(RawStream, UnaryParams, const T* in, const T* grad, T* out, int64_t n);
};

template <class T>
struct UnaryFunctions {
  const UnaryFunction<T>* first;
  int count;
  const UnaryFunction<T>* begin() const { return first; }
  const UnaryFunction<T>* end() const { return first + count; }
};
// T: float, double, __half or __nv_bfloat16.
template <class T>
UnaryFunctions<T> unary_functions();

// A parameter that is an attribute, or the one element of a tensor.
template <class T>
struct Scalar {
  T value{};
  const T* tensor = nullptr;
};

template <class T>
void pow(RawStream stream, const Scalar<T>& factor, const T* x, T* out, int64_t n);
template <class T>
void pow_back(RawStream stream, const Scalar<T>& factor, const T* x, const T* grad, T* out,
              int64_t n);

// T: float or double for gradients.
template <class T>
void clip(RawStream stream, const Scalar<T>& low, const Scalar<T>& high, const T* x, T* out,
          int64_t n);
template <class T>
void clip_back(RawStream stream, const Scalar<T>& low, const Scalar<T>& high, const T* x,
               const T* grad, T* out, int64_t n);

template <class T>
void prelu(RawStream stream, const PreluView& dims, const T* x, const T* alpha, T* out);
// Outputs may be null.
template <class T>
void prelu_back(RawStream stream, const PreluView& dims, const T* x, const T* alpha, const T* grad,
                T* x_grad, T* alpha_grad);

// word = word_of_nonfinite() of one of the elements that are not finite. T: float or double.
template <class T>
void note_nonfinite(RawStream stream, const T* x, uint32_t* word, int64_t n);

// Between all element types of casts: bool, uint8, int8, int16, int32, int64, float, double.
// Of 16-bit floats, as their words.
void widen_halves(RawStream stream, bool brain, const uint16_t* x, float* out, int64_t n);
void round_to_halves(RawStream stream, bool brain, const float* x, uint16_t* out, int64_t n);
template <class From, class To>
void cast(RawStream stream, const From* x, To* out, int64_t n);
// out = -x of truth values.
void logical_not(RawStream stream, const bool* x, bool* out, int64_t n);
// Where `truth` is set x, else y; a null operand is 0. T is any element type.
template <class T>
void select(RawStream stream, const bool* truth, const T* x, const T* y, T* out, int64_t n);

}  // namespace fleet::fluid::cuda
