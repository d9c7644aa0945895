// Numbers of selected rows, which may occur several times; what they then mean is the sum.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/process/tile_pool.h"
#include "fluid/core/tensor.h"

namespace fleet::fluid {

// Elements of one of the rows that `values` has.
inline int64_t row_width(const Tensor& values) {
  const Shape& shape = values.shape();
  return shape.rank() == 0 ? 1 : shape.numel(1, shape.rank());
}

// Throws ProgramError for a row outside [0, height); with SelectedRows::kNoHeight any number is a
// row.
void check_row_numbers(std::span<const int64_t> rows, int64_t height);

// Which of them are equal. Used by one thread at a time; what it returns is valid until the next
// call of group().
class RowGroups {
 public:
  // Checks the rows, too.
  void group(std::span<const int64_t> rows, int64_t height, const Tiles& tiles = {});

  // Each number once, ascending.
  const std::vector<int64_t>& rows() const { return rows_; }
  size_t count() const { return rows_.size(); }
  // True when the rows came like this: then each is a group, and order() and begin() are empty.
  bool as_given() const { return begin_.empty(); }
  // Positions among the given rows, group by group, in each as they occur.
  const std::vector<int64_t>& order() const { return order_; }
  // Where each group begins in order(), and the end of the last one.
  const std::vector<int64_t>& begin() const { return begin_; }

 private:
  using Numbered = std::pair<int64_t, int64_t>;  // a row and its position
  void sort(const Tiles& tiles);
  void find_groups(const Tiles& tiles);

  std::vector<int64_t> rows_;
  std::vector<int64_t> order_;
  std::vector<int64_t> begin_;
  std::vector<Numbered> sorted_;
  std::vector<Numbered> spare_;
  std::vector<size_t> counts_;  // of each part of the rows
};

}  // namespace fleet::fluid
