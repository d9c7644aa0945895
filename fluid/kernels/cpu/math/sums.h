// Sums in an order that lengths alone decide, and that vector registers like.
#pragma once

#include <cstdint>

namespace fleet::fluid::cpu {

// Sixteen interleaved partial sums, then a tree over them.
template <class T>
T sum_of(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  if (n <= 2) return n == 2 ? x[0] + x[1] : (n == 1 ? x[0] : T{});
  T lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane];
  }
  for (int64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += x[i];
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

}  // namespace fleet::fluid::cpu
