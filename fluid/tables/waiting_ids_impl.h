// What is counted of an id that has no row: a count and the clock, or show and click.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fleet::fluid::tables {

inline constexpr size_t kWaitingBytes = 8;
// The first word of an id whose row was made: what was counted is forgotten.
inline constexpr uint32_t kSettled = 0xffffffff;

inline uint32_t first_word(const std::byte* waiting) {
  uint32_t word = 0;
  std::memcpy(&word, waiting, sizeof word);
  return word;
}

}  // namespace fleet::fluid::tables
