// Loops of updates, which add up what they write. For sources that are compiled with -fopenmp-simd.
#pragma once

#include <cstddef>

#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/cpu/isa.h"

namespace fleet::fluid::cpu {

// Compiled for two instruction sets. Vectors and tails round alike: the bits are the same.
#define FLEET_SUM_OF_EACH                           \
  T sum{};                                          \
  FLEET_EACH_ALONE_ADDING(sum)                      \
  for (size_t i = 0; i < n; ++i) sum += element(i); \
  return sum

template <class T, class Element>
[[gnu::flatten]] T sum_of_each_narrow(size_t n, Element element) {
  FLEET_SUM_OF_EACH;
}
template <class T, class Element>
[[gnu::flatten, gnu::target("avx512f")]] T sum_of_each_wide(size_t n, Element element) {
  FLEET_SUM_OF_EACH;
}

// Calls element(i) for i in [0, n), which touches element i of its arrays only, and adds up what it
// returns, in no order that counts. Loops wait for their roots and quotients: wide vectors have
// twice as many at a time.
template <class T, class Element>
T each_adding(size_t n, Element element) {
  static const bool wide = avx512_loops() != nullptr;
  return wide ? sum_of_each_wide<T>(n, element) : sum_of_each_narrow<T>(n, element);
}

#undef FLEET_SUM_OF_EACH

}  // namespace fleet::fluid::cpu
