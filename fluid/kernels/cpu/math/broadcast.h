// Walking two broadcast tensors together.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/process/tile_pool.h"
#include "fluid/core/shape.h"
#include "fluid/kernels/cpu/math/sums.h"

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

  // The dimensions that are walked, of which the last is a row. Neighbours that both operands walk
  // alike are one.
  int dims() const { return outer_ + 1; }
  int64_t size(int d) const { return dims_[d].size; }
  bool moves(bool x, int d) const { return (x ? dims_[d].x_stride : dims_[d].y_stride) != 0; }

  // f(first element of out, of x, of y, length, step in x, step in y) for each row. The steps are
  // integral constants, 0 or 1, so that f is compiled for each case.
  template <class F>
  void each_row(F f) const {
    using Zero = std::integral_constant<int64_t, 0>;
    using One = std::integral_constant<int64_t, 1>;
    const int64_t end = row_count();
    const auto [x_moves, y_moves] = std::pair(row().x_stride == 1, row().y_stride == 1);
    if (x_moves && y_moves) return walk(f, One{}, One{}, 0, end);
    if (x_moves) return walk(f, One{}, Zero{}, 0, end);
    if (y_moves) return walk(f, Zero{}, One{}, 0, end);
    return walk(f, Zero{}, Zero{}, 0, end);
  }

  // The same with steps that are plain numbers.
  template <class F>
  void rows(F f) const {
    rows(0, row_count(), f);
  }
  // Of rows [begin, end).
  template <class F>
  void rows(int64_t begin, int64_t end, F f) const {
    walk(f, row().x_stride, row().y_stride, begin, end);
  }
  int64_t row_count() const {
    int64_t count = empty_ ? 0 : 1;
    for (int d = 0; d < outer_; ++d) count *= dims_[d].size;
    return count;
  }
  int64_t row_length() const { return row().size; }

  // The walk over [begin, end) of dimension d alone.
  Broadcast cut(int d, int64_t begin, int64_t end) const;

  // Elements that no two tiles share: those of out, which are in one tile anyway, of x or of y.
  enum class Apart { kOut, kX, kY };
  // f(part) for parts of the walk that are tiles, cut along one dimension; an element is as much
  // work as `cost` of a simple loop. One part where there is no such dimension.
  template <class F>
  void split(const Tiles& tiles, int64_t cost, Apart apart, const F& f) const {
    const Cut best = best_cut(cost, apart);
    if (best.dim < 0) return f(*this);
    tiles.ranges(size(best.dim), best.size,
                 [&](int64_t begin, int64_t end) { f(cut(best.dim, begin, end)); });
  }

 private:
  struct Dim {
    int64_t size = 1;
    int64_t out_stride = 1;
    int64_t x_stride = 1;
    int64_t y_stride = 1;
  };
  struct Cut {
    int dim = -1;
    int64_t size = 1;
  };

  const Dim& row() const { return dims_[outer_]; }
  Cut best_cut(int64_t cost, Apart apart) const;

  template <class F, class X, class Y>
  void walk(F& f, X x_step, Y y_step, int64_t begin, int64_t end) const {
    if (begin >= end) return;
    const int64_t length = row().size;
    int64_t index[Shape::kMaxRank] = {};
    int64_t at = at_;
    int64_t xi = x_;
    int64_t yi = y_;
    int64_t rest = begin;
    for (int d = outer_ - 1; d >= 0 && rest > 0; --d) {
      index[d] = rest % dims_[d].size;
      at += index[d] * dims_[d].out_stride;
      xi += index[d] * dims_[d].x_stride;
      yi += index[d] * dims_[d].y_stride;
      rest /= dims_[d].size;
    }
    for (int64_t row = begin;; ++row) {
      f(at, xi, yi, length, x_step, y_step);
      if (row + 1 == end) return;
      int d = outer_ - 1;
      for (; d >= 0; --d) {
        const Dim& dim = dims_[d];
        at += dim.out_stride;
        xi += dim.x_stride;
        yi += dim.y_stride;
        if (++index[d] < dim.size) break;
        at -= dim.out_stride * dim.size;
        xi -= dim.x_stride * dim.size;
        yi -= dim.y_stride * dim.size;
        index[d] = 0;
      }
    }
  }

  Dim dims_[Shape::kMaxRank] = {};
  int outer_ = 0;  // dimensions outside the row
  // Where the walk begins.
  int64_t at_ = 0;
  int64_t x_ = 0;
  int64_t y_ = 0;
  bool repeats_x_ = false;
  bool repeats_y_ = false;
  bool empty_ = false;
};

// What becomes `numel` elements of x (to_x) or of y, `start` at first: add(part, to, begin) adds
// what a part of the walk gives to elements of which the first is element `begin`, and join(to,
// parts, n) brings parts of the same elements together. Not for a walk of one dimension that
// becomes one element. `add` does not use tile_scratch.
template <class T, class Add, class Join>
void join_walk(const Broadcast& walk, const Tiles& tiles, bool to_x, int64_t numel, T start, T* out,
               const Add& add, const Join& join) {
  constexpr int64_t kFew = 16;
  const bool spread = walk.dims() > 1 && !walk.moves(to_x, 0);  // outer indices share elements
  if (spread && walk.dims() == 2) {
    return join_columns(
        tiles, walk.size(0), numel, 1, start, out,
        [&](int64_t begin, int64_t end, int64_t first, int64_t last, T* to) {
          add(walk.cut(0, begin, end).cut(1, first, last), to, first);
        },
        join);
  }
  const int64_t elements = walk.row_count() * walk.row_length();
  if (spread && walk.size(0) >= kFew && elements >= kFew * walk.size(0) * numel) {
    return join_rows(
        tiles, walk.size(0), numel, elements / walk.size(0), start, out,
        [&](int64_t begin, int64_t end, T* to) { add(walk.cut(0, begin, end), to, 0); }, join);
  }
  std::fill(out, out + numel, start);
  walk.split(tiles, 1, to_x ? Broadcast::Apart::kX : Broadcast::Apart::kY,
             [&](const Broadcast& part) { add(part, out, 0); });
}

}  // namespace fleet::fluid::cpu
