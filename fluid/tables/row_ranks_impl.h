// Which rows of a store are the least, without a list of all.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <utility>

#include "fluid/tables/store/row_store.h"

namespace fleet::fluid::tables {

// The order of a row: its rank, then its key; two rows never have the same.
struct RowOrder {
  uint32_t rank = 0;
  uint64_t key = 0;
  bool operator<(const RowOrder& other) const {
    return std::pair(rank, key) < std::pair(other.rank, other.key);
  }

  // The 16 bits at digit 0 (the highest) to 5.
  uint32_t digit(int i) const {
    return i < 2 ? rank >> (16 - 16 * i) & 0xffff
                 : static_cast<uint32_t>(key >> (48 - 16 * (i - 2)) & 0xffff);
  }
};

// A number that grows as the float does.
inline uint32_t rank_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

// So that `count` rows have an order below it. Counts by 16 bits at a time; `count` < store.size().
template <class Rank>
RowOrder order_above_least(const RowStore& store, uint64_t count, const Rank& rank) {
  constexpr int kDigits = 6;
  const auto counters = std::make_unique<std::array<uint64_t, 65536>>();
  std::array<uint32_t, kDigits> found{};
  for (int d = 0; d < kDigits; ++d) {
    counters->fill(0);
    for (uint32_t b = 0; b < kBuckets; ++b) {
      store.for_each(b, [&](uint64_t key, const std::byte* row) {
        const RowOrder order{rank(row), key};
        for (int before = 0; before < d; ++before) {
          if (order.digit(before) != found[static_cast<size_t>(before)]) return;
        }
        ++(*counters)[order.digit(d)];
      });
    }
    uint32_t digit = 0;
    while (count >= (*counters)[digit]) count -= (*counters)[digit++];
    found[static_cast<size_t>(d)] = digit;
    if (count == 0) break;
  }
  RowOrder order;
  order.rank = found[0] << 16 | found[1];
  for (size_t d = 2; d < kDigits; ++d) order.key = order.key << 16 | found[d];
  return order;
}

}  // namespace fleet::fluid::tables
