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
    if (x_step_ == 1 && y_step_ == 1) return walk(f, One{}, One{});
    if (x_step_ == 1) return walk(f, One{}, Zero{});
    if (y_step_ == 1) return walk(f, Zero{}, One{});
    return walk(f, Zero{}, Zero{});
  }

  // The same with steps that are plain numbers.
  template <class F>
  void rows(F f) const {
    walk(f, x_step_, y_step_);
  }

 private:
  struct Dim {
    int64_t size;
    int64_t x_stride;
    int64_t y_stride;
  };

  template <class F, class X, class Y>
  void walk(F& f, X x_step, Y y_step) const {
    if (empty_) return;
    int64_t index[Shape::kMaxRank] = {};
    int64_t xi = 0;
    int64_t yi = 0;
    for (int64_t at = 0;; at += length_) {
      f(at, xi, yi, length_, x_step, y_step);
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
      if (d < 0) return;
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
