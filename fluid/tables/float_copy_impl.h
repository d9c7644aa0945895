// Copies of a few floats: a call of memcpy costs more than most rows do.
#pragma once

#include <cstddef>
#include <immintrin.h>

namespace fleet::fluid::tables {

inline void copy_floats(const float* from, float* to, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(to + i, _mm256_loadu_ps(from + i));
  if (i + 4 <= n) {
    _mm_storeu_ps(to + i, _mm_loadu_ps(from + i));
    i += 4;
  }
  for (; i < n; ++i) to[i] = from[i];
}

}  // namespace fleet::fluid::tables
