// Walks of the CPU (fluid/kernels/shape/mover.h).
#pragma once

#include <cstring>

#include "fluid/kernels/shape/mover.h"

namespace fleet::fluid::cpu {

// Reads `from` at its offsets and writes `to` at its, `word` bytes (1, 2, 4 or 8) at once.
void strided_copy(const StridedWalk& walk, size_t word, const std::byte* from, std::byte* to);

// Adds what comes from several places, in row-major order.
template <class T>
void strided_add(const StridedWalk& walk, const T* from, T* to) {
  walk.rows([=](int64_t f, int64_t t, int64_t n, int64_t from_step, int64_t to_step) {
    if (from_step == 1 && to_step == 1) {
      for (int64_t i = 0; i < n; ++i) to[t + i] += from[f + i];
    } else {
      for (int64_t i = 0; i < n; ++i) to[t + i * to_step] += from[f + i * from_step];
    }
  });
}

}  // namespace fleet::fluid::cpu
