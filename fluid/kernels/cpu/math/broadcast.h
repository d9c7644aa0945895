// Walking two broadcast tensors together.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fluid/core/shape.h"

namespace fleet::fluid::cpu {

// The order in which the elements of `out` are visited: row-major, in rows as long as the two
// operands allow.
class Broadcast {
 public:
  // `out` is the shape that x and y are broadcast to, y (or x, when it has the lower rank) laid
  // along the other from dimension `axis` on; -1: the last dimensions match.
  Broadcast(const Shape& out, const Shape& x, const Shape& y, int axis);

  // True when x (or y) has elements that are used more than once.
  bool repeats(bool x) const { return x ? repeats_x_ : repeats_y_; }

  // f(first element of out, of x, of y, length, step in x, step in y) for each row. The steps are
  // integral constants, 0 or 1, so that f is compiled for each case.
  template <class F>
  void each_row(F f) const {
    using Zero = std::integral_constant<int64_t, 0>;
    using One = std::integral_constant<int64_t, 1>;
    const int64_t end = row_count();
    if (x_step_ == 1 && y_step_ == 1) return walk(f, One{}, One{}, 0, end);
    if (x_step_ == 1) return walk(f, One{}, Zero{}, 0, end);
    if (y_step_ == 1) return walk(f, Zero{}, One{}, 0, end);
    return walk(f, Zero{}, Zero{}, 0, end);
  }

  // The same with steps that are plain numbers.
  template <class F>
  void rows(F f) const {
    walk(f, x_step_, y_step_, 0, row_count());
  }
  // Of rows [begin, end).
  template <class F>
  void rows(int64_t begin, int64_t end, F f) const {
    walk(f, x_step_, y_step_, begin, end);
  }
  int64_t row_count() const {
    int64_t count = empty_ ? 0 : 1;
    for (int d = 0; d < outer_; ++d) count *= dims_[d].size;
    return count;
  }
  int64_t row_length() const { return length_; }

 private:
  struct Dim {
    int64_t size;
    int64_t x_stride;
    int64_t y_stride;
  };

  template <class F, class X, class Y>
  void walk(F& f, X x_step, Y y_step, int64_t begin, int64_t end) const {
    if (begin >= end) return;
    int64_t index[Shape::kMaxRank] = {};
    int64_t xi = 0;
    int64_t yi = 0;
    int64_t rest = begin;
    for (int d = outer_ - 1; d >= 0 && rest > 0; --d) {
      index[d] = rest % dims_[d].size;
      xi += index[d] * dims_[d].x_stride;
      yi += index[d] * dims_[d].y_stride;
      rest /= dims_[d].size;
    }
    for (int64_t row = begin;; ++row) {
      f(row * length_, xi, yi, length_, x_step, y_step);
      if (row + 1 == end) return;
      int d = outer_ - 1;
      for (; d >= 0; --d) {
        const Dim& dim = dims_[d];
        xi += dim.x_stride;
        yi += dim.y_stride;
        if (++index[d] < dim.size) break;
        xi -= dim.x_stride * dim.size;
        yi -= dim.y_stride * dim.size;
        index[d] = 0;
      }
    }
  }

  Dim dims_[Shape::kMaxRank] = {};
  int outer_ = 0;  // dimensions outside the row
  int64_t length_ = 1;
  int64_t x_step_ = 1;
  int64_t y_step_ = 1;
  bool repeats_x_ = false;
  bool repeats_y_ = false;
  bool empty_ = false;
};

}  // namespace fleet::fluid::cpu
