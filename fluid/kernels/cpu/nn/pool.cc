// Pooling, plane by plane (channel by channel when channels come last).
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/kernels/nn/pool_windows.h"
#include "fluid/ops/nn/conv.h"

namespace fleet::fluid::cpu {
namespace {

std::vector<PoolSpan> spans_of(const PoolWindows& windows, size_t dimension) {
  std::vector<PoolSpan> spans;
  for (int64_t o = 0; o < windows.window[dimension].out; ++o) {
    spans.push_back(windows.span(dimension, o));
  }
  return spans;
}

struct Pooling {
  std::vector<PoolSpan> rows;
  std::vector<PoolSpan> columns;
  int64_t in_row = 0;   // elements of a row of x
  int64_t out_row = 0;  // elements of a row of the result
  int64_t in_plane = 0;
  int64_t out_plane = 0;
  int64_t planes = 0;
  int64_t lanes = 1;  // channels that lie side by side
  int64_t cost = 0;   // of a plane, in elements of a simple loop
  Shape out;
};

Pooling pooling_of(const PrepareContext& context, const Pool2dAttrs& attrs) {
  const PoolWindows windows = pool_windows(context, attrs);
  Pooling p;
  p.rows = spans_of(windows, 0);
  p.columns = spans_of(windows, 1);
  p.lanes = windows.lanes;
  p.planes = windows.planes;
  p.in_row = windows.window[1].in * p.lanes;
  p.out_row = windows.window[1].out * p.lanes;
  p.in_plane = windows.window[0].in * p.in_row;
  p.out_plane = windows.window[0].out * p.out_row;
  p.out = windows.out;
  p.cost = 2 * (p.in_plane + p.out_plane);
  return p;
}

// As tiles: f(plane) for each.
template <class F>
void each_plane(const KernelContext& c, const Pooling& p, const F& f) {
  c.tiles().split(p.planes, p.cost, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) f(plane);
  });
}

// f(offset of the window's first element, offset of the result, rows, columns) for every window of
// one lane of one plane.
template <class F>
void each_window(const Pooling& p, F f) {
  for (size_t y = 0; y < p.rows.size(); ++y) {
    for (size_t x = 0; x < p.columns.size(); ++x) {
      f(p.rows[y].begin * p.in_row + p.columns[x].begin * p.lanes,
        static_cast<int64_t>(y) * p.out_row + static_cast<int64_t>(x) * p.lanes, p.rows[y],
        p.columns[x]);
    }
  }
}

template <class T, bool Max>
T pool_one(const Pooling& p, const T* from, const PoolSpan& rows, const PoolSpan& columns) {
  T result = Max ? *from : T{};
  const int64_t height = rows.end - rows.begin;
  const int64_t width = columns.end - columns.begin;
  for (int64_t y = 0; y < height; ++y) {
    const T* row = from + y * p.in_row;
    for (int64_t x = 0; x < width; ++x) {
      const T value = row[x * p.lanes];
      if (Max) {
        result = value > result || value != value ? value : result;
      } else {
        result += value;
      }
    }
  }
  return Max ? result : result / static_cast<T>(rows.divisor * columns.divisor);
}

// The commonest window: 2 x 2, side by side, all inside of the image.
bool is_square_of_two(const Pooling& p) {
  const auto halves = [](const std::vector<PoolSpan>& spans) {
    for (size_t i = 0; i < spans.size(); ++i) {
      const auto at = static_cast<int64_t>(2 * i);
      if (spans[i].begin != at || spans[i].end != at + 2) return false;
    }
    return true;
  };
  return p.lanes == 1 && halves(p.rows) && halves(p.columns);
}

template <class T>
void max_of_fours(const Pooling& p, const T* from, T* to) {
  const auto larger = [](T a, T b) { return b > a || b != b ? b : a; };
  const auto height = static_cast<int64_t>(p.rows.size());
  for (int64_t y = 0; y < height; ++y) {
    const T* upper = from + 2 * y * p.in_row;
    const T* lower = upper + p.in_row;
    T* out = to + y * p.out_row;
    FLEET_EACH_ALONE
    for (int64_t x = 0; x < p.out_row; ++x) {
      const T top = larger(upper[2 * x], upper[2 * x + 1]);
      out[x] = larger(larger(top, lower[2 * x]), lower[2 * x + 1]);
    }
  }
}

template <class T, bool Max>
std::unique_ptr<Prepared> prepare_pool(PrepareContext& context) {
  const Pooling p = pooling_of(context, context.attrs<Pool2dAttrs>());
  const int x = context.input("X");
  const int out = context.set_output("Out", p.out, dtype_of<T>());
  const bool fours = Max && is_square_of_two(p);
  return make_prepared([=](const KernelContext& c) {
    each_plane(c, p, [&](int64_t plane) {
      const T* from = c.in<T>(x) + plane * p.in_plane;
      T* to = c.out<T>(out) + plane * p.out_plane;
      if (fours) return max_of_fours(p, from, to);
      each_window(p,
                  [&](int64_t at, int64_t result, const PoolSpan& rows, const PoolSpan& columns) {
                    for (int64_t lane = 0; lane < p.lanes; ++lane) {
                      to[result + lane] = pool_one<T, Max>(p, from + at + lane, rows, columns);
                    }
                  });
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_any_pool(PrepareContext& context) {
  return context.attrs<Pool2dAttrs>().pooling_type == "max" ? prepare_pool<T, true>(context)
                                                            : prepare_pool<T, false>(context);
}

// The first element of the window, row by row, that is its maximum gets the whole gradient.
template <class T>
void give_to_max(const Pooling& p, const T* from, T max, T grad, T* to, const PoolSpan& rows,
                 const PoolSpan& columns) {
  for (int64_t y = 0; y < rows.end - rows.begin; ++y) {
    for (int64_t x = 0; x < columns.end - columns.begin; ++x) {
      const int64_t at = y * p.in_row + x * p.lanes;
      if (from[at] != max) continue;
      to[at] += grad;
      return;
    }
  }
}

// give_to_max for the windows of max_of_fours.
template <class T>
void give_to_fours(const Pooling& p, const T* from, const T* results, const T* grads, T* to) {
  const auto height = static_cast<int64_t>(p.rows.size());
  for (int64_t y = 0; y < height; ++y) {
    const T* upper = from + 2 * y * p.in_row;
    const T* lower = upper + p.in_row;
    const T* max = results + y * p.out_row;
    const T* grad = grads + y * p.out_row;
    T* to_upper = to + 2 * y * p.in_row;
    T* to_lower = to_upper + p.in_row;
    FLEET_EACH_ALONE
    for (int64_t x = 0; x < p.out_row; ++x) {
      T rest = grad[x];
      const auto give = [&](T value) {
        const T given = value == max[x] ? rest : T{};
        rest = value == max[x] ? T{} : rest;
        return given;
      };
      const T values[] = {give(upper[2 * x]), give(upper[2 * x + 1]), give(lower[2 * x]),
                          give(lower[2 * x + 1])};
      to_upper[2 * x] = values[0];
      to_upper[2 * x + 1] = values[1];
      to_lower[2 * x] = values[2];
      to_lower[2 * x + 1] = values[3];
    }
  }
}

template <class T>
void give_to_all(const Pooling& p, T grad, T* to, const PoolSpan& rows, const PoolSpan& columns) {
  const T share = grad / static_cast<T>(rows.divisor * columns.divisor);
  for (int64_t y = 0; y < rows.end - rows.begin; ++y) {
    for (int64_t x = 0; x < columns.end - columns.begin; ++x)
      to[y * p.in_row + x * p.lanes] += share;
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_pool_grad(PrepareContext& context) {
  const Pooling p = pooling_of(context, context.attrs<Pool2dAttrs>());
  const bool max = context.attrs<Pool2dAttrs>().pooling_type == "max";
  context.require(context.in("Out@GRAD").shape == p.out, "Out@GRAD", p.out.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  context.require(context.in("Out").shape == p.out, "Out", p.out.to_string(),
                  context.in("Out").shape.to_string());
  const int x = context.input("X");
  const int out = context.input("Out");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  const bool fours = max && is_square_of_two(p);
  const bool writes_all = fours && p.in_plane == 4 * p.out_plane;
  return make_prepared([=](const KernelContext& c) {
    T* grads = c.out<T>(x_grad);
    each_plane(c, p, [&](int64_t plane) {
      const T* from = c.in<T>(x) + plane * p.in_plane;
      const T* results = c.in<T>(out) + plane * p.out_plane;
      const T* incoming = c.in<T>(grad) + plane * p.out_plane;
      T* to = grads + plane * p.in_plane;
      if (!writes_all) std::fill(to, to + p.in_plane, T{});
      if (fours) return give_to_fours(p, from, results, incoming, to);
      each_window(p,
                  [&](int64_t at, int64_t result, const PoolSpan& rows, const PoolSpan& columns) {
                    for (int64_t lane = 0; lane < p.lanes; ++lane) {
                      const int64_t i = result + lane;
                      if (max) {
                        give_to_max(p, from + at + lane, results[i], incoming[i], to + at + lane,
                                    rows, columns);
                      } else {
                        give_to_all(p, incoming[i], to + at + lane, rows, columns);
                      }
                    }
                  });
    });
  });
}

// Where in its plane the first maximum of a window lies.
template <class T>
int64_t place_of_max(const Pooling& p, const T* plane, const PoolSpan& rows,
                     const PoolSpan& columns) {
  int64_t place = rows.begin * p.in_row + columns.begin;
  for (int64_t y = rows.begin; y < rows.end; ++y) {
    for (int64_t at = y * p.in_row + columns.begin; at < y * p.in_row + columns.end; ++at) {
      if (plane[at] > plane[place] || plane[at] != plane[at]) place = at;
    }
  }
  return place;
}

template <class T>
std::unique_ptr<Prepared> prepare_max_with_index(PrepareContext& context) {
  const Pooling p = pooling_of(context, context.attrs<MaxPoolWithIndexAttrs>().windows());
  const int x = context.input("X");
  const int out = context.set_output("Out", p.out, dtype_of<T>());
  const int mask = context.set_output("Mask", p.out, DType::kInt32);
  return make_prepared([=](const KernelContext& c) {
    each_plane(c, p, [&](int64_t plane) {
      const T* from = c.in<T>(x) + plane * p.in_plane;
      T* to = c.out<T>(out) + plane * p.out_plane;
      int32_t* places = mask >= 0 ? c.out<int32_t>(mask) + plane * p.out_plane : nullptr;
      each_window(p, [&](int64_t, int64_t result, const PoolSpan& rows, const PoolSpan& columns) {
        const int64_t place = place_of_max(p, from, rows, columns);
        to[result] = from[place];
        if (places != nullptr) places[result] = static_cast<int32_t>(place);
      });
    });
  });
}

[[noreturn]] void throw_place(int64_t place, int64_t elements) {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "an index lies outside of its plane",
               .where = "op 'max_pool2d_with_index_grad', slot 'Mask'",
               .expected = str_cat("0 to ", elements - 1),
               .got = str_cat(place),
               .fix = "give the Mask that max_pool2d_with_index made of this X"});
}

template <class T>
std::unique_ptr<Prepared> prepare_max_with_index_grad(PrepareContext& context) {
  const Pooling p = pooling_of(context, context.attrs<MaxPoolWithIndexAttrs>().windows());
  for (const char* slot : {"Out@GRAD", "Mask"}) {
    context.require(context.in(slot).shape == p.out, slot, p.out.to_string(),
                    context.in(slot).shape.to_string());
  }
  const int mask = context.input("Mask");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    each_plane(c, p, [&](int64_t plane) {
      T* to = c.out<T>(x_grad) + plane * p.in_plane;
      const auto* places = c.in<int32_t>(mask) + plane * p.out_plane;
      const T* grads = c.in<T>(grad) + plane * p.out_plane;
      std::fill_n(to, p.in_plane, T{});
      for (int64_t i = 0; i < p.out_plane; ++i) {
        const int64_t place = places[i];
        if (place < 0 || place >= p.in_plane) throw_place(place, p.in_plane);
        to[place] += grads[i];
      }
    });
  });
}

}  // namespace

void register_pool(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("pool2d", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_any_pool<T>});
    table.add_last("pool2d_grad", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_pool_grad<T>});
    table.add_last("max_pool2d_with_index", DeviceKind::kCpu, dtype_of<T>(),
                   {"loop", prepare_max_with_index<T>});
    table.add_last("max_pool2d_with_index_grad", DeviceKind::kCpu, dtype_of<T>(),
                   {"loop", prepare_max_with_index_grad<T>});
  });
}

}  // namespace fleet::fluid::cpu
