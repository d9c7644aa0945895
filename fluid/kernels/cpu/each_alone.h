// A promise to compilers about a loop.
#pragma once

// In front of a loop whose element i touches element i of each array only: states are updated in
// place, which a compiler cannot tell from overlapping arrays.
#if defined(__clang__)
#define FLEET_EACH_ALONE _Pragma("clang loop vectorize(assume_safety)")
#else
#define FLEET_EACH_ALONE _Pragma("GCC ivdep")
#endif

// The same of a loop that adds to `sum` besides, a local variable: in vectors, so in no order that
// counts. For sources that are compiled with -fopenmp-simd.
#define FLEET_PRAGMA(text) _Pragma(#text)
// A clause of OpenMP takes a name, not an expression in parentheses.
// NOLINTNEXTLINE(bugprone-macro-parentheses)
#define FLEET_EACH_ALONE_ADDING(sum) FLEET_PRAGMA(omp simd reduction(+ : sum))
