// A promise to compilers about a loop.
#pragma once

// In front of a loop whose element i touches element i of each array only: states are updated in
// place, which a compiler cannot tell from overlapping arrays.
#if defined(__clang__)
#define FLEET_EACH_ALONE _Pragma("clang loop vectorize(assume_safety)")
#else
#define FLEET_EACH_ALONE _Pragma("GCC ivdep")
#endif
