// Sums whose order is fixed by the count alone: sixteen interleaved partial sums and a tree over
// them, which vector registers like.
#pragma once

#include <cstdint>
#include <cstring>

namespace fleet::fluid::cpu {

template <class T>
class LaneSum {
 public:
  static constexpr int64_t kLanes = 16;

  // Adds value(i) for i in [0, n).
  template <class F>
  void add(int64_t n, F value) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes_[lane] += value(i + lane);
    }
    for (int64_t lane = 0; i < n; ++i, ++lane) lanes_[lane] += value(i);
  }
  // The same of the first n - n % kLanes of them; four(i) gives values i to i + 3. Where values are
  // converted on their way, compilers make more of it.
  using Four [[gnu::vector_size(4 * sizeof(T))]] = T;
  template <class F>
  void add_fours(int64_t n, F four) {
    Four lanes[kLanes / 4];
    std::memcpy(lanes, lanes_, sizeof lanes);
    for (int64_t i = 0; i + kLanes <= n; i += kLanes) {
      for (int64_t k = 0; k < kLanes / 4; ++k) lanes[k] += four(i + 4 * k);
    }
    std::memcpy(lanes_, lanes, sizeof lanes);
  }
  // Adds number i of a whole of which others are added so, too. Below 0 are ids of growing tables.
  void add_at(int64_t i, T value) { lanes_[i & (kLanes - 1)] += value; }
  T total() {
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t lane = 0; lane < width; ++lane) lanes_[lane] += lanes_[lane + width];
    }
    return lanes_[0];
  }

 private:
  T lanes_[kLanes] = {};
};

}  // namespace fleet::fluid::cpu
