// Binary elementwise ops with broadcasting: one walk for all of them, a small function for a row.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "base/strings.h"
#include "fluid/kernels/cpu/math/broadcast.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/ops/math/elementwise.h"

namespace fleet::fluid::cpu {

// One row of operands that broadcast: an operand that does not move is one element.
template <class T>
struct BinaryRow {
  const T* x;
  bool x_moves;
  const T* y;
  bool y_moves;
  int64_t n;
};

template <class T, class R>
using RowFunction = void (*)(const BinaryRow<T>& row, R* out);
// What each element passes back to one operand for the incoming gradient g.
template <class T>
using RowGradient = void (*)(const BinaryRow<T>& row, const T* g, T* out);

// out[i] = Op::value(x, y).
template <class Op, class T, class R>
void binary_row(const BinaryRow<T>& row, R* out) {
  const T* x = row.x;
  const T* y = row.y;
  if (row.x_moves && row.y_moves) {
    for (int64_t i = 0; i < row.n; ++i) out[i] = Op::value(x[i], y[i]);
  } else if (row.x_moves) {
    const T b = *y;
    for (int64_t i = 0; i < row.n; ++i) out[i] = Op::value(x[i], b);
  } else if (row.y_moves) {
    const T a = *x;
    for (int64_t i = 0; i < row.n; ++i) out[i] = Op::value(a, y[i]);
  } else {
    std::fill(out, out + row.n, static_cast<R>(Op::value(*x, *y)));
  }
}

inline std::string binary_where(const PrepareContext& context) {
  return str_cat("op '", context.op().type, "', X '", join(context.op().input("X"), ", "), "', Y '",
                 join(context.op().input("Y"), ", "), "'");
}

// Calls f as Broadcast::rows does, for parts of rows that are long, in tiles.
template <class F>
void each_part(const Broadcast& walk, const Tiles& tiles, const F& f) {
  const int64_t length = walk.row_length();
  if (length > Tiles::elements) {
    walk.rows([&](int64_t at, int64_t xi, int64_t yi, int64_t n, int64_t xstep, int64_t ystep) {
      tiles.split(n, 1, [&](int64_t begin, int64_t end) {
        f(at + begin, xi + begin * xstep, yi + begin * ystep, end - begin, xstep, ystep);
      });
    });
  } else {
    tiles.split(walk.row_count(), length,
                [&](int64_t begin, int64_t end) { walk.rows(begin, end, f); });
  }
}

template <class T, class R>
void each_binary_row(const Broadcast& walk, const Tiles& tiles, const T* xs, const T* ys, R* outs,
                     RowFunction<T, R> function) {
  each_part(walk, tiles,
            [&](int64_t at, int64_t xi, int64_t yi, int64_t n, int64_t xstep, int64_t ystep) {
              function({xs + xi, xstep != 0, ys + yi, ystep != 0, n}, outs + at);
            });
}

template <class T, class R>
std::unique_ptr<Prepared> prepare_binary(PrepareContext& context, int axis,
                                         RowFunction<T, R> function) {
  const ValueSpec& x_spec = context.in("X");
  const ValueSpec& y_spec = context.in("Y");
  context.require(y_spec.dtype == x_spec.dtype, "Y", std::string(dtype_name(x_spec.dtype)),
                  std::string(dtype_name(y_spec.dtype)));
  const Shape shape = broadcast_shape(x_spec.shape, y_spec.shape, axis, binary_where(context));
  const Broadcast walk(shape, x_spec.shape, y_spec.shape, axis);
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", shape, dtype_of<R>());
  return make_prepared([=](const KernelContext& c) {
    each_binary_row(walk, c.tiles(), c.in<T>(x), c.in<T>(y), c.out<R>(out), function);
  });
}

// out[i] = Op::back(x, y, g).
template <class Op, class T>
void row_gradient(const BinaryRow<T>& row, const T* g, T* out) {
  const T* x = row.x;
  const T* y = row.y;
  if (row.x_moves && row.y_moves) {
    for (int64_t i = 0; i < row.n; ++i) out[i] = Op::back(x[i], y[i], g[i]);
  } else if (row.x_moves) {
    const T b = *y;
    for (int64_t i = 0; i < row.n; ++i) out[i] = Op::back(x[i], b, g[i]);
  } else if (row.y_moves) {
    const T a = *x;
    for (int64_t i = 0; i < row.n; ++i) out[i] = Op::back(a, y[i], g[i]);
  } else {
    const T a = *x;
    const T b = *y;
    for (int64_t i = 0; i < row.n; ++i) out[i] = Op::back(a, b, g[i]);
  }
}

// Adds what a walk passes back to one operand, in row-major order, to sums of which the first is
// that of element `begin`.
template <class T>
void add_back(const Broadcast& walk, bool to_x, const T* xs, const T* ys, const T* gs,
              RowGradient<T> function, T* sums, int64_t begin) {
  constexpr int64_t kBlock = 512;
  walk.rows([&](int64_t at, int64_t xi, int64_t yi, int64_t n, int64_t xstep, int64_t ystep) {
    T* to = sums + ((to_x ? xi : yi) - begin);
    T block[kBlock];
    const bool moves = to_x ? xstep != 0 : ystep != 0;
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t length = std::min(kBlock, n - first);
      const T* parts = gs + at + first;
      if (function != nullptr) {
        function({xs + xi + first * xstep, xstep != 0, ys + yi + first * ystep, ystep != 0, length},
                 parts, block);
        parts = block;
      }
      if (!moves) {
        *to += sum_of(parts, length);
      } else {
        T* __restrict column_sums = to + first;
        for (int64_t i = 0; i < length; ++i) column_sums[i] += parts[i];
      }
    }
  });
}

// The gradient of one operand: what its elements pass back, summed where an element was used more
// than once, in an order that shapes decide. A null function passes g itself.
template <class T>
void pass_back(const Broadcast& walk, const Tiles& tiles, bool to_x, const T* xs, const T* ys,
               const T* gs, T* grad, int64_t numel, RowGradient<T> function) {
  if (!walk.repeats(to_x)) {
    if (function == nullptr) return copy_in_tiles(tiles, gs, grad, numel * sizeof(T));
    each_part(
        walk, tiles,
        [&](int64_t at, int64_t xi, int64_t yi, int64_t n, int64_t xstep, int64_t ystep) {
          function({xs + xi, xstep != 0, ys + yi, ystep != 0, n}, gs + at, grad + (to_x ? xi : yi));
        });
    return;
  }
  const auto add = [&](const Broadcast& part, T* sums, int64_t begin) {
    add_back(part, to_x, xs, ys, gs, function, sums, begin);
  };
  if (walk.dims() == 1) {
    *grad = sum_of_parts<T>(tiles, walk.size(0), 1, [&](int64_t begin, int64_t end) {
      T sum{};
      add(walk.cut(0, begin, end), &sum, 0);
      return sum;
    });
  } else {
    join_walk(walk, tiles, to_x, numel, T{}, grad, add, add_row<T>);
  }
}

// Gradient kernels of one op: functions for X and for Y.
template <class T>
std::unique_ptr<Prepared> prepare_binary_grad(PrepareContext& context, RowGradient<T> to_x,
                                              RowGradient<T> to_y) {
  const Shape x_shape = context.in("X").shape;
  const Shape y_shape = context.in("Y").shape;
  const int axis = context.attrs<ElementwiseAttrs>().axis;
  const Shape shape = broadcast_shape(x_shape, y_shape, axis, binary_where(context));
  context.require(context.in("Out@GRAD").shape == shape, "Out@GRAD", shape.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const Broadcast walk(shape, x_shape, y_shape, axis);
  const int x = context.input("X");
  const int y = context.input("Y");
  const int g = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", x_shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", y_shape, dtype_of<T>());
  const int64_t x_numel = x_shape.numel();
  const int64_t y_numel = y_shape.numel();
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const T* ys = c.in<T>(y);
    const T* gs = c.in<T>(g);
    if (x_grad >= 0) pass_back(walk, c.tiles(), true, xs, ys, gs, c.out<T>(x_grad), x_numel, to_x);
    if (y_grad >= 0) pass_back(walk, c.tiles(), false, xs, ys, gs, c.out<T>(y_grad), y_numel, to_y);
  });
}

}  // namespace fleet::fluid::cpu
