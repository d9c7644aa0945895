// Ops that move elements are one walk over two strided views; this is the walk, and what a device
// does with it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fluid/core/shape.h"
#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid {

// Those of all tensors: moving looks at their size alone.
constexpr DType kElementTypes[] = {
    DType::kBool,  DType::kUInt8,   DType::kInt8,     DType::kInt16,   DType::kInt32,
    DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

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

  // Dimensions of more than one element, outermost first; none where all are of one.
  struct Dim {
    int64_t size = 1;
    int64_t from = 0;
    int64_t to = 0;
  };
  std::span<const Dim> dims() const { return {dims_, static_cast<size_t>(count_)}; }
  bool empty() const { return empty_; }

  int64_t elements() const {
    int64_t count = empty_ ? 0 : 1;
    for (const Dim& dim : dims()) count *= dim.size;
    return count;
  }
  // Whether elements of the innermost dimension lie side by side, on both sides.
  bool dense_rows() const {
    return count_ == 0 || (dims_[count_ - 1].from == 1 && dims_[count_ - 1].to == 1);
  }

  // f(offset from, offset to, length, step from, step to) for the rows of the innermost dimension
  // that elements `begin` to `end` - 1 are, in row-major order; the first and the last may be parts
  // of rows.
  template <class F>
  void rows(int64_t begin, int64_t end, F f) const {
    if (begin >= end) return;
    const Dim row = count_ == 0 ? Dim{1, 1, 1} : dims_[count_ - 1];
    int64_t index[2 * Shape::kMaxRank] = {};
    int64_t from = 0;
    int64_t to = 0;
    int64_t rest = begin / row.size;
    for (int d = count_ - 2; d >= 0 && rest > 0; --d) {
      index[d] = rest % dims_[d].size;
      rest /= dims_[d].size;
      from += index[d] * dims_[d].from;
      to += index[d] * dims_[d].to;
    }
    int64_t first = begin % row.size;
    for (int64_t left = end - begin;;) {
      const int64_t n = std::min(left, row.size - first);
      f(from + first * row.from, to + first * row.to, n, row.from, row.to);
      left -= n;
      if (left == 0) return;
      first = 0;
      for (int d = count_ - 2; d >= 0; --d) {
        from += dims_[d].from;
        to += dims_[d].to;
        if (++index[d] < dims_[d].size) break;
        from -= dims_[d].from * dims_[d].size;
        to -= dims_[d].to * dims_[d].size;
        index[d] = 0;
      }
    }
  }
  // All of them.
  template <class F>
  void rows(F f) const {
    rows(0, elements(), f);
  }

  // Of dimension d so many elements only; where they begin is the caller's.
  StridedWalk with_size(size_t d, int64_t size) const {
    StridedWalk part = *this;
    part.dims_[d].size = size;
    return part;
  }

 private:
  Dim dims_[2 * Shape::kMaxRank];
  int count_ = 0;
  bool empty_ = false;
};

// Elements that move along a walk, which must outlive it.
struct Move {
  const StridedWalk* walk;
  const std::byte* from;
  std::byte* to;
};

// How a device moves elements, of `word` bytes (1, 2, 4 or 8). Given to kernels by the device's
// registration.
struct Mover {
  DeviceKind device;
  // Along the walk.
  void (*copy)(const KernelContext&, const StridedWalk&, size_t word, const std::byte* from,
               std::byte* to);
  // All of it; both of one size, which may be the same memory.
  void (*copy_all)(const KernelContext&, const Tensor& from, Tensor& to);
  // n elements, each with the first `word` bytes of `value`.
  void (*fill)(const KernelContext&, uint64_t value, size_t word, std::byte* to, int64_t n);
  // Several copies, which touch nothing that another one writes; null: one by one.
  void (*copy_each)(const KernelContext&, std::span<const Move> moves, size_t word) = nullptr;

  void copy_moves(const KernelContext& c, std::span<const Move> moves, size_t word) const {
    if (copy_each != nullptr) return copy_each(c, moves, word);
    for (const Move& move : moves) copy(c, *move.walk, word, move.from, move.to);
  }
};

// concat, split, reshape, transpose, stack … (fluid/ops/shape/shape_ops.h), slice, pad, reverse and
// expand (index_ops.h), for all element types.
void register_moves(KernelTable& table, const Mover& mover);
void register_boxes(KernelTable& table, const Mover& mover);

}  // namespace fleet::fluid
