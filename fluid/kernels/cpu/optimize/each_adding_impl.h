// Loops of updates, some of which add up what they write. For sources that are compiled with
// -fopenmp-simd.
#pragma once

#include <cstddef>

#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/cpu/isa.h"

namespace fleet::fluid::cpu {

template <class Loop>
[[gnu::flatten]] auto in_narrow_vectors(Loop loop) {
  return loop();
}
template <class Loop>
[[gnu::flatten, gnu::target("avx512f")]] auto in_wide_vectors(Loop loop) {
  return loop();
}

// Returns loop(), compiled for two instruction sets. Vectors and tails round alike: the bits are
// the same. Loops wait for their roots and quotients: wide vectors have twice as many at a time.
template <class Loop>
auto in_widest_vectors(Loop loop) {
  static const bool wide = avx512_loops() != nullptr;
  return wide ? in_wide_vectors(loop) : in_narrow_vectors(loop);
}

// Calls element(i) for i in [0, n), which touches element i of its arrays only, and adds up what it
// returns, in no order that counts.
template <class T, class Element>
T each_adding(size_t n, Element element) {
  return in_widest_vectors([=] {
    T sum{};
    FLEET_EACH_ALONE_ADDING(sum)
    for (size_t i = 0; i < n; ++i) sum += element(i);
    return sum;
  });
}

}  // namespace fleet::fluid::cpu
