// Walking two strided views of one shape together: transposing, slicing, padding, repeating and
// turning around are all this.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "fluid/core/shape.h"

namespace fleet::fluid::cpu {

// Row-major strides of a shape, in elements.
inline std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()), 1);
  for (int i = shape.rank() - 2; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = strides[static_cast<size_t>(i) + 1] * shape[i + 1];
  }
  return strides;
}

class StridedWalk {
 public:
  // Adds a dimension inside those that are there: its size, and the distance between neighbours on
  // both sides, in elements (0: repeated; negative: turned around).
  void add(int64_t size, int64_t from, int64_t to) {
    if (size == 0) empty_ = true;
    if (size == 1) return;
    if (count_ > 0) {
      Dim& outer = dims_[count_ - 1];
      if (outer.from == from * size && outer.to == to * size) {
        outer = {outer.size * size, from, to};
        return;
      }
    }
    dims_[count_++] = {size, from, to};
  }

  // f(offset from, offset to, length, step from, step to) for each row of the innermost dimension,
  // in row-major order.
  template <class F>
  void rows(F f) const {
    if (empty_) return;
    if (count_ == 0) return f(int64_t{0}, int64_t{0}, int64_t{1}, int64_t{1}, int64_t{1});
    const Dim& row = dims_[count_ - 1];
    int64_t index[2 * Shape::kMaxRank] = {};
    int64_t from = 0;
    int64_t to = 0;
    for (;;) {
      f(from, to, row.size, row.from, row.to);
      int d = count_ - 2;
      for (; d >= 0; --d) {
        from += dims_[d].from;
        to += dims_[d].to;
        if (++index[d] < dims_[d].size) break;
        from -= dims_[d].from * dims_[d].size;
        to -= dims_[d].to * dims_[d].size;
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }

 private:
  struct Dim {
    int64_t size = 1;
    int64_t from = 0;
    int64_t to = 0;
  };
  Dim dims_[2 * Shape::kMaxRank];
  int count_ = 0;
  bool empty_ = false;
};

// Copies elements of `word` bytes (1, 2, 4 or 8).
void strided_copy(const StridedWalk& walk, size_t word, const std::byte* from, std::byte* to);

// Adds what comes from several places, in row-major order.
template <class T>
void strided_add(const StridedWalk& walk, const T* from, T* to) {
  walk.rows([=](int64_t f, int64_t t, int64_t n, int64_t from_step, int64_t to_step) {
    if (from_step == 1 && to_step == 1) {
      for (int64_t i = 0; i < n; ++i) to[t + i] += from[f + i];
    } else {
      for (int64_t i = 0; i < n; ++i) to[t + i * to_step] += from[f + i * from_step];
    }
  });
}

}  // namespace fleet::fluid::cpu
