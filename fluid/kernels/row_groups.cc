#include "fluid/kernels/row_groups.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

void check_rows(std::span<const int64_t> rows, int64_t height) {
  const auto outside =
      std::find_if(rows.begin(), rows.end(), [=](int64_t row) { return row < 0 || row >= height; });
  if (outside == rows.end()) return;
  throw_error(ErrorCode::kShapeMismatch, {.what = "a gradient names a row outside the parameter",
                                          .where = "update op, input Grad",
                                          .expected = str_cat("0 to ", height - 1),
                                          .got = str_cat(*outside),
                                          .fix = "check the ids that were looked up"});
}

}  // namespace

// By row, equal ones in their order. Many are dealt out digit by digit, from the lowest on.
void RowGroups::sort() {
  constexpr size_t kFew = 512;
  constexpr int kBits = 11;
  constexpr size_t kDigits = size_t{1} << kBits;
  if (sorted_.size() <= kFew) {
    std::sort(sorted_.begin(), sorted_.end());
    return;
  }
  const int64_t largest = std::max_element(sorted_.begin(), sorted_.end())->first;
  spare_.resize(sorted_.size());
  for (int shift = 0; shift < 63 && largest >> shift != 0; shift += kBits) {
    const auto digit = [shift](const Numbered& row) {
      return static_cast<size_t>(row.first >> shift) % kDigits;
    };
    std::array<size_t, kDigits> next{};
    for (const Numbered& row : sorted_) ++next[digit(row)];
    std::exclusive_scan(next.begin(), next.end(), next.begin(), size_t{0});
    for (const Numbered& row : sorted_) spare_[next[digit(row)]++] = row;
    sorted_.swap(spare_);
  }
}

void RowGroups::group(std::span<const int64_t> rows, int64_t height) {
  check_rows(rows, height);
  order_.clear();
  begin_.clear();
  const bool ascending =
      std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end();
  if (ascending) {
    rows_.assign(rows.begin(), rows.end());
    return;
  }
  sorted_.clear();
  for (size_t i = 0; i < rows.size(); ++i) sorted_.emplace_back(rows[i], static_cast<int64_t>(i));
  sort();
  rows_.clear();
  for (const auto& [row, position] : sorted_) {
    if (rows_.empty() || rows_.back() != row) {
      rows_.push_back(row);
      begin_.push_back(static_cast<int64_t>(order_.size()));
    }
    order_.push_back(position);
  }
  begin_.push_back(static_cast<int64_t>(order_.size()));
}

}  // namespace fleet::fluid
