// Sums over the channels of an image or of rows, and passes over its elements, for the kernels of
// batch normalisation.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fluid/kernels/cpu/math/lanes.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/image_layout.h"
#include "fluid/kernels/nn/batch_norm.h"

namespace fleet::fluid::cpu {

// f(k) for the channels in tiles, each `passes` passes over its elements; or f(block) for blocks of
// so many channels.
template <class F>
void each_channel(const Channels& v, const Tiles& tiles, int64_t passes, const F& f,
                  int64_t block = 1) {
  tiles.split(v.count / block, passes * block * v.each(), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) f(k);
  });
}

// The sum of f(position) over the elements of a channel that has more than one in a row.
template <class T, class F>
T channel_sum(const Channels& v, int64_t k, F f) {
  LaneSum<T> sum;
  for (int64_t row = 0; row < v.outer; ++row) {
    const int64_t base = (row * v.count + k) * v.inner;
    sum.add(v.inner, [&](int64_t i) { return f(base + i); });
  }
  return sum.total();
}

// f(position) for every element of such a channel.
template <class F>
void channel_each(const Channels& v, int64_t k, F f) {
  for (int64_t row = 0; row < v.outer; ++row) {
    const int64_t base = (row * v.count + k) * v.inner;
    for (int64_t i = 0; i < v.inner; ++i) f(base + i);
  }
}

// For images in blocks of channels: sums[c] = the sum of f(position, c) over the block's channel c,
// added in the order of channel_sum.
template <int64_t Block, class T, class F>
void block_sums(const Channels& v, int64_t block, T* sums, F f) {
  constexpr int64_t kLanes = LaneSum<T>::kLanes;
  T lanes[kLanes][Block] = {};
  const auto add = [&](int64_t position, T* lane) {
    for (int64_t c = 0; c < Block; ++c) lane[c] += f(position + c, c);
  };
  for (int64_t row = 0; row < v.outer; ++row) {
    const int64_t base = (row * v.count + block * Block) * v.inner;
    int64_t i = 0;
    for (; i + kLanes <= v.inner; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) add(base + (i + lane) * Block, lanes[lane]);
    }
    for (int64_t lane = 0; i < v.inner; ++i, ++lane) add(base + i * Block, lanes[lane]);
  }
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) {
      for (int64_t c = 0; c < Block; ++c) lanes[lane][c] += lanes[lane + width][c];
    }
  }
  std::copy_n(lanes[0], Block, sums);
}

// out[position] = f(position, c) for every element of a block.
template <int64_t Block, class T, class F>
void block_each(const Channels& v, int64_t block, T* out, F f) {
  for (int64_t row = 0; row < v.outer; ++row) {
    const int64_t begin = (row * v.count + block * Block) * v.inner;
    for (int64_t i = begin; i < begin + v.inner * Block; i += Block) {
      T values[Block];
      for (int64_t c = 0; c < Block; ++c) values[c] = f(i + c, c);
      std::copy_n(values, Block, out + i);
    }
  }
}

// For channels of one element in a row: sums[k] = the sum of f(position, k) over channel k.
template <class T, class F>
void channel_sums(const Channels& v, const Tiles& tiles, T* sums, F f) {
  sum_columns(tiles, v.outer, v.count, 1, sums,
              [&](int64_t begin, int64_t end, int64_t first, int64_t last, T* to) {
                for (int64_t row = begin; row < end; ++row) {
                  const int64_t base = row * v.count;
                  for (int64_t k = first; k < last; ++k) to[k - first] += f(base + k, k);
                }
              });
}

// out[position] = f(position, k) for every element of them.
template <class T, class F>
void each_element(const Channels& v, const Tiles& tiles, T* out, F f) {
  tiles.split(v.outer, v.count, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t base = row * v.count;
      for (int64_t k = 0; k < v.count; ++k) out[base + k] = f(base + k, k);
    }
  });
}

// What is in blocks has its channels in front.
inline bool is_misread(const PrepareContext& context, const BatchNormAttrs& attrs) {
  return context.in("X").layout == Layout::kBlocked && attrs.data_layout == "NHWC";
}

}  // namespace fleet::fluid::cpu
