// What base/philox.cc and base/numbers/philox_words.cc compute with: the numbers of Philox4x32-10.
#pragma once

#include <cstdint>

namespace fleet::philox_detail {

inline constexpr uint32_t kMultiplier0 = 0xD2511F53;
inline constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
inline constexpr uint32_t kWeyl0 = 0x9E3779B9;
inline constexpr uint32_t kWeyl1 = 0xBB67AE85;
inline constexpr int kRounds = 10;

// Uniform in [0, 1).
inline float to_float(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

}  // namespace fleet::philox_detail
