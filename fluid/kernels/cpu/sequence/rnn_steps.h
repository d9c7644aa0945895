// How recurrent kernels walk sequences: longest first, one step of all of them at a time, so that
// each step is one matrix product over the sequences that still go on (the first so many of them).
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/kernels/cpu/sequence/sequences.h"

namespace fleet::fluid::cpu {

class RnnSteps {
 public:
  // Of sequences with these offsets; with `reverse` they are read from their ends.
  void reset(const Offsets& offsets, bool reverse);

  int64_t sequences() const { return static_cast<int64_t>(order_.size()); }
  int64_t count() const { return static_cast<int64_t>(starts_.size()) - 1; }
  int64_t rows() const { return starts_.back(); }
  // Sequences that reach step t.
  int64_t active(int64_t t) const {
    return starts_[static_cast<size_t>(t) + 1] - starts_[static_cast<size_t>(t)];
  }
  // First batch row of step t: batch rows are ordered by step, then by sequence.
  int64_t start(int64_t t) const { return starts_[static_cast<size_t>(t)]; }
  // Row of the sequences' own tensor behind a batch row.
  int64_t source(int64_t batch_row) const { return sources_[static_cast<size_t>(batch_row)]; }
  // Number, in the LoD's order, of the j-th longest sequence.
  int64_t sequence(int64_t j) const { return order_[static_cast<size_t>(j)]; }

 private:
  Offsets offsets_;
  bool reverse_ = false;
  std::vector<int64_t> order_;
  std::vector<int64_t> starts_ = {0};
  std::vector<int64_t> sources_;
};

// The products of all steps with one weight, op(B)[k, n]: packed once for all of them, into panels
// of columns that stay in the first cache.
template <class T>
class StepGemm {
 public:
  StepGemm(int64_t n, int64_t k, bool transpose_b) : n_(n), k_(k), transpose_b_(transpose_b) {}

  void pack(const T* b, const Tiles& tiles);
  // c[m, n] = a[m, k] * op(B) as it was packed.
  void run(int64_t m, const T* a, T* c, const Tiles& tiles) const;

 private:
  int64_t n_;
  int64_t k_;
  bool transpose_b_;
  std::vector<T> panels_;
};

enum class RnnActivation { kIdentity, kSigmoid, kTanh, kRelu };

RnnActivation rnn_activation(const PrepareContext& context, const std::string& name);

// In place.
void activate(RnnActivation kind, float* x, int64_t n);
void activate(RnnActivation kind, double* x, int64_t n);

// The derivative where the function's value is y.
template <class T>
T activation_slope(RnnActivation kind, T y) {
  switch (kind) {
    case RnnActivation::kSigmoid:
      return y * (T{1} - y);
    case RnnActivation::kTanh:
      return T{1} - y * y;
    case RnnActivation::kRelu:
      return y > T{} ? T{1} : T{};
    default:
      return T{1};
  }
}

// The same as a function of y alone, of an activation that is a constant or not.
template <RnnActivation kind>
struct KnownSlope {
  template <class T>
  T operator()(T y) const {
    return activation_slope(kind, y);
  }
};
struct AnySlope {
  RnnActivation kind;
  template <class T>
  T operator()(T y) const {
    return activation_slope(kind, y);
  }
};

// Calls f with the slopes of gates, of candidates and of cells: the usual ones are constants.
template <class F>
void with_slopes(RnnActivation gate, RnnActivation candidate, RnnActivation cell, const F& f) {
  constexpr auto kSigmoid = RnnActivation::kSigmoid;
  constexpr auto kTanh = RnnActivation::kTanh;
  if (gate == kSigmoid && candidate == kTanh && cell == kTanh) {
    f(KnownSlope<kSigmoid>(), KnownSlope<kTanh>(), KnownSlope<kTanh>());
  } else {
    f(AnySlope{gate}, AnySlope{candidate}, AnySlope{cell});
  }
}

// to[column] += the sum over rows of from[row, column].
template <class T>
void add_column_sums(const Tiles& tiles, const T* from, int64_t rows, int64_t columns, T* to) {
  constexpr int64_t kColumns = 64;  // whole cache lines
  tiles.split((columns + kColumns - 1) / kColumns, rows * kColumns, [&](int64_t i, int64_t last) {
    const int64_t begin = i * kColumns;
    const int64_t end = std::min(last * kColumns, columns);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = begin; k < end; ++k) to[k] += from[row * columns + k];
    }
  });
}

// A kernel that is a class made from the context, with state that cannot be copied.
template <class Body>
class PreparedBody final : public Prepared {
 public:
  explicit PreparedBody(PrepareContext& context) : body_(context) {}
  void run(const KernelContext& context) override { body_(context); }

 private:
  Body body_;
};

template <class Body>
std::unique_ptr<Prepared> prepare_body(PrepareContext& context) {
  return std::make_unique<PreparedBody<Body>>(context);
}

}  // namespace fleet::fluid::cpu
