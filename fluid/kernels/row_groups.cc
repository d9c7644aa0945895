#include "fluid/kernels/row_groups.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/value.h"

namespace fleet::fluid {
void check_row_numbers(std::span<const int64_t> rows, int64_t height) {
  if (height == SelectedRows::kNoHeight) return;
  const auto outside =
      std::find_if(rows.begin(), rows.end(), [=](int64_t row) { return row < 0 || row >= height; });
  if (outside == rows.end()) return;
  throw_error(ErrorCode::kShapeMismatch, {.what = "a gradient names a row outside the parameter",
                                          .where = "update op, input Grad",
                                          .expected = str_cat("0 to ", height - 1),
                                          .got = str_cat(*outside),
                                          .fix = "check the ids that were looked up"});
}

namespace {

// Of n items, those that one tile deals out. One thread takes them all at once.
int64_t dealt_at_once(const Tiles& tiles, int64_t n) {
  constexpr int64_t kCost = 4;
  constexpr int64_t kMost = 32;  // tiles
  return tiles.parallel() ? std::max(Tiles::items(kCost), n / kMost) : std::max<int64_t>(1, n);
}

// Calls put(i, place) for each item i in [0, n): places are those from 0 on, bucket by bucket, in
// each in the items' order. `bucket(i)` is below `buckets`; `counts` is memory for the work.
template <class Bucket, class Put>
void deal_out(const Tiles& tiles, int64_t n, size_t buckets, std::vector<size_t>& counts,
              const Bucket& bucket, const Put& put) {
  const int64_t size = dealt_at_once(tiles, n);
  const auto parts = std::max<size_t>(1, static_cast<size_t>((n + size - 1) / size));
  counts.assign(parts * buckets, 0);
  const auto counts_of = [&](int64_t begin) {
    return counts.data() + static_cast<size_t>(begin / size) * buckets;
  };
  tiles.ranges(n, size, [&](int64_t begin, int64_t end) {
    size_t* const own = counts_of(begin);
    for (int64_t i = begin; i < end; ++i) ++own[bucket(i)];
  });
  // From how many items of each bucket a part has to where the first of them goes.
  size_t next = 0;
  for (size_t b = 0; b < buckets; ++b) {
    for (size_t part = 0; part < parts; ++part) {
      next += std::exchange(counts[part * buckets + b], next);
    }
  }
  tiles.ranges(n, size, [&](int64_t begin, int64_t end) {
    size_t* const own = counts_of(begin);
    for (int64_t i = begin; i < end; ++i) put(i, own[bucket(i)]++);
  });
}

}  // namespace

// By row, equal ones in their order. Many are dealt out digit by digit, from the lowest on; the
// digits are those of what a row is more than the least one.
void RowGroups::sort(const Tiles& tiles) {
  constexpr size_t kFew = 512;
  constexpr int kBits = 11;
  constexpr size_t kDigits = size_t{1} << kBits;
  if (sorted_.size() <= kFew) {
    std::sort(sorted_.begin(), sorted_.end());
    return;
  }
  const auto [least, most] = std::minmax_element(sorted_.begin(), sorted_.end());
  const auto from_zero = static_cast<uint64_t>(std::min<int64_t>(least->first, 0));
  const uint64_t largest = static_cast<uint64_t>(most->first) - from_zero;
  spare_.resize(sorted_.size());
  const auto n = static_cast<int64_t>(sorted_.size());
  for (int shift = 0; shift < 64 && largest >> shift != 0; shift += kBits) {
    const Numbered* const from = sorted_.data();
    Numbered* const to = spare_.data();
    deal_out(
        tiles, n, kDigits, counts_,
        [=](int64_t i) {
          return (static_cast<uint64_t>(from[i].first) - from_zero) >> shift & (kDigits - 1);
        },
        [=](int64_t i, size_t place) { to[place] = from[i]; });
    sorted_.swap(spare_);
  }
}

// Of sorted_. Each part counts the groups that begin in it.
void RowGroups::find_groups(const Tiles& tiles) {
  const auto n = static_cast<int64_t>(sorted_.size());
  const int64_t size = dealt_at_once(tiles, n);
  const auto begins = [this](size_t i) {
    return i == 0 || sorted_[i].first != sorted_[i - 1].first;
  };
  counts_.assign(static_cast<size_t>((n + size - 1) / size), 0);
  order_.resize(sorted_.size());
  tiles.ranges(n, size, [&](int64_t begin, int64_t end) {
    size_t count = 0;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      order_[i] = sorted_[i].second;
      if (begins(i)) ++count;
    }
    counts_[static_cast<size_t>(begin / size)] = count;
  });
  size_t total = 0;
  for (size_t& count : counts_) total += std::exchange(count, total);
  rows_.resize(total);
  begin_.resize(total + 1);
  tiles.ranges(n, size, [&](int64_t begin, int64_t end) {
    size_t group = counts_[static_cast<size_t>(begin / size)];
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      if (!begins(i)) continue;
      rows_[group] = sorted_[i].first;
      begin_[group++] = static_cast<int64_t>(i);
    }
  });
  begin_[total] = n;
}

void RowGroups::group(std::span<const int64_t> rows, int64_t height, const Tiles& tiles) {
  check_row_numbers(rows, height);
  order_.clear();
  begin_.clear();
  const bool ascending =
      std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end();
  if (ascending) {
    rows_.assign(rows.begin(), rows.end());
    return;
  }
  sorted_.resize(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) sorted_[i] = {rows[i], static_cast<int64_t>(i)};
  sort(tiles);
  find_groups(tiles);
}

}  // namespace fleet::fluid
