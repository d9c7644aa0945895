#include <type_traits>

#include "fluid/kernels/cuda/divisor_impl.h"
#include "fluid/kernels/cuda/shape/index_loops.h"
#include "fluid/kernels/cuda/shape/row_indices_impl.h"

namespace fleet::fluid::cuda {
namespace {

struct LastLoop {
  RowIndices index;
  int32_t* last;
  __device__ void operator()(int64_t i) const {
    const int64_t row = index_at(index, i);
    if (is_row(index, row)) atomicMax(last + row, static_cast<int32_t>(i));
  }
};

template <class T>
struct PutLastLoop {
  RowIndices index;
  WideDivisor width;
  int64_t row_width;
  const int32_t* last;
  const T* from;
  T* to;
  __device__ void operator()(int64_t i) const {
    int64_t which = i;
    const int64_t k = width.split(which);
    const int64_t row = index_at(index, which);
    if (is_row(index, row) && last[row] == which) to[row * row_width + k] = from[i];
  }
};

template <class T>
struct ZeroNamedLoop {
  RowIndices index;
  WideDivisor width;
  int64_t row_width;
  T* to;
  __device__ void operator()(int64_t i) const {
    int64_t which = i;
    const int64_t k = width.split(which);
    const int64_t row = index_at(index, which);
    if (is_row(index, row)) to[row * row_width + k] = T{};
  }
};

template <class T>
struct TakeLastLoop {
  RowIndices index;
  WideDivisor width;
  int64_t row_width;
  const int32_t* last;
  const T* x;
  T* out;
  __device__ T element(int64_t i) const {
    int64_t which = i;
    const int64_t k = width.split(which);
    const int64_t row = index_at(index, which);
    if (!is_row(index, row)) return no_element<T>();
    return last[row] == which ? x[row * row_width + k] : T{};
  }
};

template <class T>
struct OneHotLoop {
  RowIndices index;
  WideDivisor depth;
  bool allow_outside;
  T* out;
  __device__ T element(int64_t i) const {
    int64_t which = i;
    const int64_t k = depth.split(which);
    const int64_t row = index_at(index, which);
    if (is_row(index, row)) return row == k ? T{1} : T{};
    return allow_outside ? T{} : no_element<T>();
  }
};

__device__ int64_t line_start(const Rows& lines, int64_t line) {
  return line / lines.inner * lines.n * lines.inner + line % lines.inner;
}

// Elements [first, end) of a line, in the order in which they are added to `sum`.
template <class T>
__device__ T sum_part(const CumsumArgs& args, const T* x, int64_t start, int64_t first, int64_t end,
                      T sum, T* out) {
  for (int64_t j = first; j < end; ++j) {
    const int64_t along = args.reverse ? args.lines.n - 1 - j : j;
    const int64_t at = start + along * args.lines.inner;
    const T before = sum;
    sum += x[at];
    if (out != nullptr) out[at] = args.exclusive ? before : sum;
  }
  return sum;
}

template <class T>
struct CumsumByThread {
  CumsumArgs args;
  const T* x;
  T* out;
  __device__ void operator()(int64_t line) const {
    sum_part(args, x, line_start(args.lines, line), 0, args.lines.n, T{}, out);
  }
};

// Each thread has a part of the line.
template <class T>
struct CumsumByBlock {
  CumsumArgs args;
  const T* x;
  T* out;
  __device__ void operator()(int64_t line) const {
    __shared__ T sums[kThreads];
    const int64_t start = line_start(args.lines, line);
    const int64_t n = args.lines.n;
    const int64_t length = (n + kThreads - 1) / kThreads;
    const int64_t first = threadIdx.x * length < n ? threadIdx.x * length : n;
    const int64_t end = first + length < n ? first + length : n;
    sums[threadIdx.x] = sum_part<T>(args, x, start, first, end, T{}, nullptr);
    __syncthreads();
    T before{};
    for (unsigned t = 0; t < threadIdx.x; ++t) before += sums[t];
    sum_part(args, x, start, first, end, before, out);
    __syncthreads();
  }
};

template <class T>
struct Extreme {
  T value;
  int64_t at;  // -1: none
};

// What is not a number is no extreme, unless it is the first: as on the CPU.
template <class T>
struct ExtremeLoop {
  Rows lines;
  bool largest;
  const T* x;
  int64_t* wide;
  int32_t* narrow;

  __device__ bool beats(const Extreme<T>& a, const Extreme<T>& b) const {
    if (a.at < 0 || b.at < 0) return b.at < 0;
    if (a.value == b.value) return a.at < b.at;
    return largest ? a.value > b.value : a.value < b.value;
  }
  template <class Team>
  __device__ void row(int64_t line) const {
    const T* values = x + line_start(lines, line);
    Extreme<T> best = {T{}, -1};
    for (int64_t j = team_thread<Team>(); j < lines.n; j += Team::kSize) {
      const Extreme<T> own = {values[j * lines.inner], j};
      if (own.value == own.value && beats(own, best)) best = own;
    }
    best = Team::combine(
        best, [this](const Extreme<T>& a, const Extreme<T>& b) { return beats(a, b) ? a : b; });
    if (team_thread<Team>() != 0) return;
    const int64_t at = values[0] == values[0] ? best.at : 0;
    if (wide != nullptr) {
      wide[line] = at;
    } else {
      narrow[line] = static_cast<int32_t>(at);
    }
  }
};

// Of elements i and j of a line, which comes first; positions behind the end come last.
template <class T>
struct LineOrder {
  SortArgs args;
  const T* x;
  __device__ bool before(int64_t start, int64_t i, int64_t j) const {
    if (i >= args.lines.n || j >= args.lines.n) return i < j;
    const T a = x[start + i * args.lines.inner];
    const T b = x[start + j * args.lines.inner];
    const bool a_number = a == a;
    const bool b_number = b == b;
    if (a_number != b_number) return a_number;
    if (!a_number || a == b) return i < j;
    return args.descending ? a > b : a < b;
  }
};

// A place is the number of elements before it.
template <class T>
struct SortByCounting {
  LineOrder<T> order;
  T* out;
  int64_t* indices;
  __device__ void operator()(int64_t i) const {
    const Rows& lines = order.args.lines;
    const int64_t start = line_start(lines, i / lines.n);
    const int64_t own = i % lines.n;
    int64_t place = 0;
    for (int64_t j = 0; j < lines.n; ++j) place += order.before(start, j, own) ? 1 : 0;
    const int64_t to = start + place * lines.inner;
    if (out != nullptr) out[to] = order.x[start + own * lines.inner];
    if (indices != nullptr) indices[to] = own;
  }
};

// A step of a bitonic sort of each line's positions, `size` of them.
struct NumberPositions {
  int64_t size;
  int64_t* out;
  __device__ int64_t element(int64_t i) const { return i % size; }
};
template <class T>
struct SortStep {
  LineOrder<T> order;
  int64_t size;
  int64_t stage;
  int64_t distance;
  int64_t* positions;
  __device__ void operator()(int64_t i) const {
    const int64_t line = i / (size / 2);
    const int64_t pair = i % (size / 2);
    const int64_t low = pair / distance * 2 * distance + pair % distance;
    int64_t& a = positions[line * size + low];
    int64_t& b = positions[line * size + low + distance];
    const bool ascending = (low & stage) == 0;
    if (order.before(line_start(order.args.lines, line), b, a) != ascending) return;
    const int64_t moved = a;
    a = b;
    b = moved;
  }
};
template <class T>
struct TakeSorted {
  Rows lines;
  int64_t size;
  const int64_t* positions;
  const T* x;
  T* out;
  int64_t* indices;
  __device__ void operator()(int64_t i) const {
    const int64_t line = i / lines.n;
    const int64_t start = line_start(lines, line);
    const int64_t from = positions[line * size + i % lines.n];
    const int64_t to = start + i % lines.n * lines.inner;
    if (out != nullptr) out[to] = x[start + from * lines.inner];
    if (indices != nullptr) indices[to] = from;
  }
};

template <class T>
struct SortBackLoop {
  Rows lines;
  const int64_t* indices;
  const T* grad;
  T* out;
  __device__ void operator()(int64_t i) const {
    const int64_t start = line_start(lines, i / lines.n);
    const int64_t at = start + i % lines.n * lines.inner;
    const int64_t place = indices[at];
    if (place >= 0 && place < lines.n) out[start + place * lines.inner] = grad[at];
  }
};

struct ShapeLoop {
  SmallShape shape;
  int32_t* out;
  __device__ int32_t element(int64_t i) const { return shape.sizes[i]; }
};

constexpr int64_t kCounted = 512;  // elements of a line that are sorted by counting

int64_t positions_of(int64_t n) {
  int64_t size = 1;
  while (size < n) size *= 2;
  return size;
}

}  // namespace

void last_of_rows(RawStream stream, const RowIndices& index, int32_t* last) {
  fill<int32_t>(stream, -1, last, index.rows);
  launch_each(stream, "last_of_rows", index.count, LastLoop{index, last});
}

template <class T>
void put_last_rows(RawStream stream, const RowIndices& index, int64_t width, const int32_t* last,
                   const T* from, T* to) {
  const int64_t n = index.count * width;
  launch_each(stream, "put_last_rows", n,
              PutLastLoop<T>{index, WideDivisor(width, n), width, last, from, to});
}
template <class T>
void zero_named_rows(RawStream stream, const RowIndices& index, int64_t width, T* to) {
  const int64_t n = index.count * width;
  launch_each(stream, "zero_named_rows", n,
              ZeroNamedLoop<T>{index, WideDivisor(width, n), width, to});
}
template <class T>
void take_last_rows(RawStream stream, const RowIndices& index, int64_t width, const int32_t* last,
                    const T* x, T* out) {
  const int64_t n = index.count * width;
  launch_each(stream, "take_last_rows", n,
              TakeLastLoop<T>{index, WideDivisor(width, n), width, last, x, out});
}

template <class T>
void one_hot(RawStream stream, const RowIndices& index, bool allow_outside, T* out) {
  const int64_t n = index.count * index.rows;
  launch_each(stream, "one_hot", n,
              OneHotLoop<T>{index, WideDivisor(index.rows, n), allow_outside, out});
}

template <class T>
void cumsum(RawStream stream, const CumsumArgs& args, const T* x, T* out) {
  constexpr int64_t kManyLines = 1 << 14;
  const int64_t lines = args.lines.outer * args.lines.inner;
  if (lines >= kManyLines || args.lines.n <= kThreads) {
    launch_each(stream, "cumsum", lines, CumsumByThread<T>{args, x, out});
  } else {
    launch_each_row(stream, "cumsum", lines, CumsumByBlock<T>{args, x, out});
  }
}

template <class T>
void extreme_places(RawStream stream, const Rows& lines, bool largest, const T* x, int64_t* wide,
                    int32_t* narrow) {
  launch_rows(stream, "extreme_places", lines.outer * lines.inner, lines.n,
              ExtremeLoop<T>{lines, largest, x, wide, narrow});
}

int64_t sort_scratch(const Rows& lines) {
  return lines.n <= kCounted ? 0 : lines.outer * lines.inner * positions_of(lines.n);
}

template <class T>
void sort_lines(RawStream stream, const SortArgs& args, const T* x, int64_t* order, T* out,
                int64_t* indices) {
  const Rows& lines = args.lines;
  const int64_t count = lines.outer * lines.inner;
  const LineOrder<T> by = {args, x};
  if (lines.n <= kCounted) {
    launch_each(stream, "sort_lines", count * lines.n, SortByCounting<T>{by, out, indices});
    return;
  }
  const int64_t size = positions_of(lines.n);
  launch_each(stream, "sort_lines", count * size, NumberPositions{size, order});
  for (int64_t stage = 2; stage <= size; stage *= 2) {
    for (int64_t distance = stage / 2; distance >= 1; distance /= 2) {
      launch_each(stream, "sort_lines", count * (size / 2),
                  SortStep<T>{by, size, stage, distance, order});
    }
  }
  launch_each(stream, "sort_lines", count * lines.n,
              TakeSorted<T>{lines, size, order, x, out, indices});
}

template <class T>
void sort_lines_back(RawStream stream, const Rows& lines, const int64_t* indices, const T* grad,
                     T* out) {
  const int64_t n = lines.outer * lines.inner * lines.n;
  fill<T>(stream, T{}, out, n);
  launch_each(stream, "sort_lines_back", n, SortBackLoop<T>{lines, indices, grad, out});
}

void write_shape(RawStream stream, const SmallShape& shape, int32_t* out) {
  launch_each(stream, "write_shape", shape.rank, ShapeLoop{shape, out});
}

#define FLEET_NUMBERS(T)                                                                    \
  template void one_hot(RawStream, const RowIndices&, bool, T*);                            \
  template void cumsum(RawStream, const CumsumArgs&, const T*, T*);                         \
  template void extreme_places(RawStream, const Rows&, bool, const T*, int64_t*, int32_t*); \
  template void sort_lines(RawStream, const SortArgs&, const T*, int64_t*, T*, int64_t*)
FLEET_NUMBERS(int32_t);
FLEET_NUMBERS(int64_t);
FLEET_NUMBERS(float);
FLEET_NUMBERS(double);
#undef FLEET_NUMBERS

#define FLEET_REALS(T)                                                                          \
  template void put_last_rows(RawStream, const RowIndices&, int64_t, const int32_t*, const T*,  \
                              T*);                                                              \
  template void zero_named_rows(RawStream, const RowIndices&, int64_t, T*);                     \
  template void take_last_rows(RawStream, const RowIndices&, int64_t, const int32_t*, const T*, \
                               T*);                                                             \
  template void sort_lines_back(RawStream, const Rows&, const int64_t*, const T*, T*)
FLEET_REALS(float);
FLEET_REALS(double);
#undef FLEET_REALS

}  // namespace fleet::fluid::cuda
