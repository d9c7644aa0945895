// The device code: each function puts its work on a stream of the current device and returns. All
// pointers are to device memory unless said otherwise, T is float or double, and `n` may be 0.
// Sums are made in an order that shapes alone fix, without atomics. A launch that fails throws
// Error.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace fleet::fluid::cuda {

// A cudaStream_t.
using RawStream = void*;

constexpr int kMaxDims = 9;

// The dimensions of a broadcast result, and the steps of both operands along them, in elements.
struct BroadcastDims {
  int rank = 0;
  int64_t size[kMaxDims] = {};
  int64_t x_step[kMaxDims] = {};
  int64_t y_step[kMaxDims] = {};
};

// Sums of some dimensions of an array: `kept` ones number the results in row-major order, `gone`
// ones are summed. Steps are those of the array.
struct SumDims {
  int kept_rank = 0;
  int64_t kept_size[kMaxDims] = {};
  int64_t kept_step[kMaxDims] = {};
  int gone_rank = 0;
  int64_t gone_size[kMaxDims] = {};
  int64_t gone_step[kMaxDims] = {};
  int64_t results = 1;
  int64_t terms = 1;  // of each result
};

// out = sum / divisor, for each result. `partial`: reduce_partials(dims) elements
// (math/reduce_loops.h).
template <class T>
void sum_dims(RawStream stream, const SumDims& dims, const T* x, T divisor, T* partial, T* out);

// out = x * scale + bias, or (x + bias) * scale; a non-null `factor` replaces scale.
template <class T>
struct ScaleArgs {
  T scale{};
  T bias{};
  bool bias_after_scale = true;
  const T* factor = nullptr;
};
template <class T>
void scale(RawStream stream, const ScaleArgs<T>& args, const T* x, T* out, int64_t n);

// T may be any element type.
template <class T>
void fill(RawStream stream, T value, T* out, int64_t n);
// out[i] = *value / divisor.
template <class T>
void fill_quotient(RawStream stream, const T* value, T divisor, T* out, int64_t n);

constexpr int kMaxSummands = 64;
template <class T>
struct Summands {
  int count = 0;
  const T* arrays[kMaxSummands] = {};
};
// The tree of base/shard_tree.h over the arrays. `out` may be one of them. T may be int64_t too.
template <class T>
void tree_sum(RawStream stream, const Summands<T>& summands, T* out, int64_t n);

// An array seen as [outer, n, inner] around one axis; a row is the n elements of that axis.
struct Rows {
  int64_t outer = 0;
  int64_t n = 0;
  int64_t inner = 0;
};

template <class T>
void softmax(RawStream stream, const Rows& rows, const T* x, T* out);
template <class T>
void softmax_back(RawStream stream, const Rows& rows, const T* out, const T* grad, T* x_grad);

// Labels of the losses: indices of classes, or (soft) distributions. A row whose index is `ignore`
// costs nothing; an index that is no class makes the row NaN.
template <class T>
struct Labels {
  const int64_t* index = nullptr;  // null: soft
  const T* soft = nullptr;
  int64_t ignore = -100;
};

// y = -log x[label] (soft: -sum of label * log x) and, unless null, match = x[label]; inner is 1.
template <class T>
void cross_entropy(RawStream stream, const Rows& rows, const T* x, const Labels<T>& labels, T* y,
                   T* match);
// The gradient for x from x itself, or with hard labels from match = x[label] alone (x null).
template <class T>
void cross_entropy_back(RawStream stream, const Rows& rows, const T* x, const T* match,
                        const Labels<T>& labels, const T* y_grad, T* x_grad);

template <class T>
void softmax_with_cross_entropy(RawStream stream, const Rows& rows, const T* logits,
                                const Labels<T>& labels, T* probability, T* loss);
template <class T>
void softmax_with_cross_entropy_back(RawStream stream, const Rows& rows, const T* probability,
                                     const Labels<T>& labels, const T* loss_grad, T* logits_grad);

// The values of base/philox.h for elements first, first + 1, ….
struct RandomStream {
  RandomKey key;
  uint64_t first = 0;
  uint64_t word = 0;
};
// low + width * uniform: the bits of the CPU kernel.
template <class T>
void uniform(RawStream stream, const RandomStream& random, T low, T width, T* out, int64_t n);
// mean + std * normal, in double precision: the CPU kernel's but for the last bits of log and cos.
template <class T>
void gaussian(RawStream stream, const RandomStream& random, double mean, double std, T* out,
              int64_t n);

// Updates of tensors that are put on a stream as one piece of work.
class UpdateBatch;

// Where an update goes. *nonfinite, which is in mapped host memory, becomes 1 when an element that
// is written to the parameter is not finite, and is left alone otherwise.
struct UpdateTarget {
  RawStream stream = nullptr;
  uint32_t* nonfinite = nullptr;
  UpdateBatch* batch = nullptr;
  bool more_follow = false;  // a later update puts this one's work on the stream
};

// Rows of equal number, which come from the host (fluid/kernels/row_groups.h).
struct RowGroupArrays {
  const int64_t* rows = nullptr;  // the number of each group, ascending
  // Where each group begins in `order`, and the end; null: group i is value i.
  const int64_t* begin = nullptr;
  const int64_t* order = nullptr;  // positions among the values, group by group
  int64_t count = 0;
};
template <class T>
struct RowValues {
  RowGroupArrays groups;
  const T* values = nullptr;
  int64_t width = 0;  // elements of a row
};

// A gradient: an element for each of the parameter, or rows of it.
template <class T>
struct GradientArrays {
  const T* values = nullptr;
  bool sparse = false;  // rows, in place of values
  RowValues<T> rows;
  // For each row of the parameter its group, -1 for a row of zeros; null: only rows that are named
  // change.
  const int32_t* place = nullptr;
};

// `rate` is one element.
template <class T>
struct SgdArgs {
  const T* param = nullptr;
  GradientArrays<T> grad;
  const T* rate = nullptr;
  T* param_out = nullptr;
};
template <class T>
void sgd(const UpdateTarget& target, const SgdArgs<T>& args, int64_t n);

template <class T>
struct MomentumArgs {
  const T* param = nullptr;
  GradientArrays<T> grad;
  const T* velocity = nullptr;
  const T* rate = nullptr;
  T* param_out = nullptr;
  T* velocity_out = nullptr;
  T mu{};
  bool nesterov = false;
};
template <class T>
void momentum(const UpdateTarget& target, const MomentumArgs<T>& args, int64_t n);

// The outputs of the powers may be null, or the inputs.
template <class T>
struct AdamArgs {
  const T* param = nullptr;
  GradientArrays<T> grad;
  const T* moment1 = nullptr;
  const T* moment2 = nullptr;
  const T* rate = nullptr;
  const T* power1 = nullptr;
  const T* power2 = nullptr;
  T* param_out = nullptr;
  T* moment1_out = nullptr;
  T* moment2_out = nullptr;
  T* power1_out = nullptr;
  T* power2_out = nullptr;
  T beta1{};
  T beta2{};
  T epsilon{};
  bool ahead = false;  // uses the powers of the next step
};
template <class T>
void adam(const UpdateTarget& target, const AdamArgs<T>& args, int64_t n);

}  // namespace fleet::fluid::cuda
