// The CPU's kernels of sequence ops, family by family.
#pragma once

#include <algorithm>

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/sequence/sequences.h"

namespace fleet::fluid::cpu {

using Offsets = SequenceOffsets;

// Calls f(i, begin, end) for rows [begin, end) of sequence i, until all rows were given: in tiles
// of as many rows each, however long the sequences are. A row is as much work as `cost` elements of
// a simple loop.
template <class F>
void split_rows(const Tiles& tiles, const Offsets& offsets, int64_t cost, const F& f) {
  tiles.split(offsets.back(), cost, [&](int64_t begin, int64_t end) {
    auto i = std::upper_bound(offsets.begin(), offsets.end(), begin) - offsets.begin() - 1;
    for (; begin < end; ++i) {
      const int64_t stop = std::min(end, offsets[static_cast<size_t>(i) + 1]);
      if (begin < stop) f(static_cast<int64_t>(i), begin, stop);
      begin = stop;
    }
  });
}

// Calls f(i) for every sequence i: in tiles of those that begin within as many rows.
template <class F>
void split_sequences(const Tiles& tiles, const Offsets& offsets, int64_t cost, const F& f) {
  const auto first_from = [&](int64_t row) {
    return std::lower_bound(offsets.begin(), offsets.end() - 1, row) - offsets.begin();
  };
  const int64_t rows = std::max<int64_t>(1, offsets.back());
  tiles.split(rows, cost, [&](int64_t begin, int64_t end) {
    const auto last = end < rows ? first_from(end) : sequence_count(offsets);
    for (auto i = first_from(begin); i < last; ++i) f(static_cast<int64_t>(i));
  });
}

void register_sequence_conv(KernelTable& table);
void register_sequence_joining(KernelTable& table);
void register_sequence_padding(KernelTable& table);
void register_sequence_pool(KernelTable& table);
void register_gru(KernelTable& table);
void register_lstm(KernelTable& table);

}  // namespace fleet::fluid::cpu
