// Counter-based random numbers: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel Random
// Numbers: As Easy as 1, 2, 3", SC 2011. A value depends on its key and its counter only, so any
// slice of a tensor can be drawn alone, anywhere, in any order.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace fleet {

// The stream of one tensor or op: derived from a program seed and a name. A seed of 0 is a seed
// like any other.
struct RandomKey {
  uint32_t low = 0;
  uint32_t high = 0;

  static RandomKey of(uint64_t seed, std::string_view name);
};

// The block of four 32-bit words at a counter. `index` addresses elements, `stream` whatever else
// a value depends on (step and shard).
std::array<uint32_t, 4> philox(RandomKey key, uint64_t index, uint64_t stream);

// Element `index` of a stream, uniform in [0, 1): 24 random bits for float, 53 for double.
float uniform_float(RandomKey key, uint64_t index, uint64_t stream = 0);
double uniform_double(RandomKey key, uint64_t index, uint64_t stream = 0);

// Element `index` of a stream, from the standard normal distribution (Box and Muller, 1958, in
// double precision).
double normal_double(RandomKey key, uint64_t index, uint64_t stream = 0);

}  // namespace fleet
