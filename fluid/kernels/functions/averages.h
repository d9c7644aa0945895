// Running sums of parameters, and parameters that go back part of their way, for every device
// (fluid/ops/optimize/average.h).
#pragma once

#include <cstdint>

#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid::functions {

struct AverageWindow {
  double average_window_rate = 0;  // of all updates
  int64_t min_average_window = 0;
  int64_t max_average_window = 0;
};

struct AverageCounts {
  int64_t count = 0;
  int64_t old_count = 0;
  int64_t updates = 0;
};

// One update, which the counts before it decide.
struct AverageUpdate {
  bool moves = false;  // the newest values go to the second sum
  bool full = false;   // a new window begins
  AverageCounts next;

  FLEET_HOST_DEVICE static AverageUpdate after(const AverageCounts& before,
                                               const AverageWindow& window) {
    constexpr int64_t kMaxSummands = 16384;
    AverageUpdate update;
    AverageCounts& next = update.next;
    next = {before.count + 1, before.old_count, before.updates + 1};
    update.moves = next.updates % kMaxSummands == 0;
    const auto wanted =
        static_cast<int64_t>(static_cast<double>(next.updates) * window.average_window_rate);
    const int64_t length = window.max_average_window < wanted ? window.max_average_window : wanted;
    update.full = next.count >= window.min_average_window && next.count >= length;
    if (update.full) {
      next.old_count = next.count;
      next.count = 0;
    }
    return update;
  }

  // Element by element: sums[0 .. 2] become those with the parameter's.
  template <class T>
  FLEET_HOST_DEVICE void add(T param, T* sums) const {
    const T first = sums[0] + param;
    const T second = moves ? sums[1] + first : sums[1];
    const T rest = moves ? T{} : first;
    if (full) sums[2] = rest + second;
    sums[0] = full ? T{} : rest;
    sums[1] = full ? T{} : second;
  }
};

}  // namespace fleet::fluid::functions
