// Sums of selected rows that several contributors made. A contributor without a row counts as zeros
// there, so that the sum has in its rows the values that the sum of dense gradients has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fluid/core/value.h"

namespace fleet::fluid {

// What one contributor made: strictly ascending row numbers, and their values one after the other.
template <class T>
struct RowsView {
  std::span<const int64_t> rows;
  const T* values = nullptr;
};

// The rows that any part has, ascending. `shape`: that of the values, whatever its first dimension.
// `sum(arrays, out, n)` adds n elements of all parts, in the parts' order.
template <class T, class Sum>
SelectedRows sum_of_parts(std::span<const RowsView<T>> parts, int64_t height, Shape shape,
                          const Sum& sum) {
  constexpr size_t kElementsAtOnce = 16384;
  SelectedRows total;
  total.height = height;
  for (const auto& part : parts) {
    total.rows.insert(total.rows.end(), part.rows.begin(), part.rows.end());
  }
  std::sort(total.rows.begin(), total.rows.end());
  total.rows.erase(std::unique(total.rows.begin(), total.rows.end()), total.rows.end());
  const auto width = static_cast<size_t>(shape.numel(1, shape.rank()));
  shape.set(0, static_cast<int64_t>(total.rows.size()));
  total.value = Tensor(dtype_of<T>(), shape);
  const size_t at_once = std::max<size_t>(1, kElementsAtOnce / std::max<size_t>(1, width));
  std::vector<T> scratch(parts.size() * at_once * width);
  std::vector<const T*> arrays;
  std::vector<size_t> next(parts.size(), 0);
  T* out = total.value.template data<T>();
  for (size_t begin = 0; begin < total.rows.size(); begin += at_once) {
    const size_t count = std::min(at_once, total.rows.size() - begin);
    arrays.clear();
    for (size_t p = 0; p < parts.size(); ++p) {
      T* to = scratch.data() + p * at_once * width;
      arrays.push_back(to);
      for (size_t i = 0; i < count; ++i, to += width) {
        const auto& part = parts[p];
        const bool has = next[p] < part.rows.size() && part.rows[next[p]] == total.rows[begin + i];
        if (has) {
          std::copy_n(part.values + next[p]++ * width, width, to);
        } else {
          std::fill_n(to, width, T{});
        }
      }
    }
    sum(std::span<const T* const>(arrays), out, count * width);
    out += count * width;
  }
  return total;
}

}  // namespace fleet::fluid
