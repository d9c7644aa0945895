#include "fluid/kernels/cpu/math/broadcast.h"

#include <algorithm>
#include <array>

namespace fleet::fluid::cpu {
namespace {

using Strides = std::array<int64_t, Shape::kMaxRank>;

// Row-major strides of `part` laid along `out` from dimension `start` on; 0 where it is repeated.
Strides strides_along(const Shape& out, const Shape& part, int start) {
  Strides strides{};
  int64_t stride = 1;
  for (int i = part.rank() - 1; i >= 0; --i) {
    const int at = start + i;
    if (at < out.rank()) strides[static_cast<size_t>(at)] = part[i] == 1 ? 0 : stride;
    stride *= part[i];
  }
  return strides;
}

}  // namespace

Broadcast::Broadcast(const Shape& out, const Shape& x, const Shape& y, int axis) {
  const int start = [&] {
    const int difference = x.rank() < y.rank() ? y.rank() - x.rank() : x.rank() - y.rank();
    return axis < 0 ? difference : axis;
  }();
  const Strides xs = strides_along(out, x, x.rank() < y.rank() ? start : 0);
  const Strides ys = strides_along(out, y, x.rank() < y.rank() ? 0 : start);
  int count = 0;
  for (int i = 0; i < out.rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (out[i] == 0) empty_ = true;
    if (out[i] == 1) continue;
    repeats_x_ = repeats_x_ || xs[at] == 0;
    repeats_y_ = repeats_y_ || ys[at] == 0;
    const Dim dim = {out[i], 1, xs[at], ys[at]};
    if (count > 0 && dims_[count - 1].x_stride == dim.x_stride * dim.size &&
        dims_[count - 1].y_stride == dim.y_stride * dim.size) {
      dims_[count - 1] = {dims_[count - 1].size * dim.size, 1, dim.x_stride, dim.y_stride};
    } else {
      dims_[count++] = dim;
    }
  }
  if (count == 0) return;
  outer_ = count - 1;
  for (int d = outer_; d > 0; --d) dims_[d - 1].out_stride = dims_[d].out_stride * dims_[d].size;
}

Broadcast Broadcast::cut(int d, int64_t begin, int64_t end) const {
  Broadcast part = *this;
  Dim& dim = part.dims_[d];
  part.at_ += begin * dim.out_stride;
  part.x_ += begin * dim.x_stride;
  part.y_ += begin * dim.y_stride;
  dim.size = end - begin;
  return part;
}

// The one that makes the most tiles.
Broadcast::Cut Broadcast::best_cut(int64_t cost, Apart apart) const {
  constexpr int64_t kLine = 16;  // elements of a row that tiles keep together
  Cut best;
  int64_t most = 0;
  for (int d = 0; d <= outer_ && !empty_; ++d) {
    if (apart != Apart::kOut && !moves(apart == Apart::kX, d)) continue;
    const int64_t others = row_count() * row_length() / size(d);
    int64_t items = Tiles::items(cost * others);
    if (d == outer_) {
      items = std::max(items, apart == Apart::kOut ? kLine : least_strip());
      items = pieces_of(items, kLine) * kLine;
    }
    const int64_t tiles = pieces_of(size(d), items);
    if (tiles <= most) continue;
    most = tiles;
    best = {d, items};
  }
  return best;
}

}  // namespace fleet::fluid::cpu
