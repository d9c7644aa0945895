// base/philox.cc, for .cu files.
#pragma once

#include <cstdint>

#include "base/philox.h"

namespace fleet::fluid::cuda {

struct PhiloxBlock {
  uint32_t x[4];
};

__device__ inline PhiloxBlock philox_block(RandomKey key, uint64_t index, uint64_t stream) {
  PhiloxBlock b = {{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                    static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * b.x[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57} * b.x[2];
    b = {{static_cast<uint32_t>(p1 >> 32) ^ b.x[1] ^ key.low, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ b.x[3] ^ key.high, static_cast<uint32_t>(p0)}};
    key.low += 0x9E3779B9;
    key.high += 0xBB67AE85;
  }
  return b;
}

__device__ inline double to_double(uint32_t high, uint32_t low) {
  return static_cast<double>((static_cast<uint64_t>(high) << 32 | low) >> 11) * 0x1p-53;
}

__device__ inline double uniform_number(RandomKey key, uint64_t index, uint64_t stream) {
  const PhiloxBlock b = philox_block(key, index, stream);
  return to_double(b.x[0], b.x[1]);
}

__device__ inline double normal_number(RandomKey key, uint64_t index, uint64_t stream) {
  constexpr double kTwoPi = 6.283185307179586476925286766559;
  const PhiloxBlock b = philox_block(key, index, stream);
  const double radius = sqrt(-2.0 * log(1.0 - to_double(b.x[0], b.x[1])));
  return radius * cos(kTwoPi * to_double(b.x[2], b.x[3]));
}

}  // namespace fleet::fluid::cuda
