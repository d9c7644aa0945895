#include "fluid/kernels/cpu/math/broadcast.h"

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
  // Neighbouring dimensions that both operands walk alike become one.
  int count = 0;
  for (int i = 0; i < out.rank(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (out[i] == 0) empty_ = true;
    if (out[i] == 1) continue;
    repeats_x_ = repeats_x_ || xs[at] == 0;
    repeats_y_ = repeats_y_ || ys[at] == 0;
    const Dim dim = {out[i], xs[at], ys[at]};
    if (count > 0 && dims_[count - 1].x_stride == dim.x_stride * dim.size &&
        dims_[count - 1].y_stride == dim.y_stride * dim.size) {
      dims_[count - 1] = {dims_[count - 1].size * dim.size, dim.x_stride, dim.y_stride};
    } else {
      dims_[count++] = dim;
    }
  }
  if (count == 0) return;
  outer_ = count - 1;
  length_ = dims_[outer_].size;
  x_step_ = dims_[outer_].x_stride;
  y_step_ = dims_[outer_].y_stride;
}

}  // namespace fleet::fluid::cpu
