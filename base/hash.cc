#include "base/hash.h"

#include <array>
#include <cstring>
#include <nmmintrin.h>

namespace fleet {
namespace {

constexpr uint32_t kCastagnoli = 0x82F63B78;  // reflected
constexpr size_t kStretch = 4096;             // bytes, a power of two

// What so many zero bytes make of the state of a CRC-32C: a linear map, so the sum of what they
// make of its bytes.
class ZeroBytes {
 public:
  constexpr explicit ZeroBytes(size_t count) {
    Columns map{};  // of one zero bit
    map[0] = kCastagnoli;
    for (size_t bit = 1; bit < map.size(); ++bit) map[bit] = uint32_t{1} << (bit - 1);
    for (size_t bits = 8 * count; bits > 1; bits /= 2) {
      const Columns half = map;
      for (uint32_t& column : map) column = product(half, column);
    }
    for (size_t byte = 0; byte < tables_.size(); ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        tables_[byte][value] = product(map, value << (8 * byte));
      }
    }
  }
  constexpr uint32_t operator()(uint32_t state) const {
    return tables_[0][state & 0xFF] ^ tables_[1][state >> 8 & 0xFF] ^
           tables_[2][state >> 16 & 0xFF] ^ tables_[3][state >> 24];
  }

 private:
  using Columns = std::array<uint32_t, 32>;  // what becomes of each bit

  static constexpr uint32_t product(const Columns& map, uint32_t state) {
    uint32_t sum = 0;
    for (size_t bit = 0; bit < map.size(); ++bit) {
      if ((state >> bit & 1) != 0) sum ^= map[bit];
    }
    return sum;
  }

  std::array<std::array<uint32_t, 256>, 4> tables_{};
};
constexpr ZeroBytes kOverStretch(kStretch);

uint64_t word_at(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

}  // namespace

uint64_t fnv1a(std::string_view bytes, uint64_t seed) {
  uint64_t hash = seed;
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
  uint64_t state = static_cast<uint32_t>(~crc);
  const std::byte* p = bytes.data();
  size_t n = bytes.size();
  // An instruction waits for the one before, but a processor runs three at once: so three stretches
  // at a time, of which the later ones begin with nothing.
  for (; n >= 3 * kStretch; n -= 3 * kStretch, p += 3 * kStretch) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      state = _mm_crc32_u64(state, word_at(p + i));
      second = _mm_crc32_u64(second, word_at(p + kStretch + i));
      third = _mm_crc32_u64(third, word_at(p + 2 * kStretch + i));
    }
    const uint32_t two = kOverStretch(static_cast<uint32_t>(state)) ^ static_cast<uint32_t>(second);
    state = kOverStretch(two) ^ static_cast<uint32_t>(third);
  }
  for (; n >= 8; n -= 8, p += 8) state = _mm_crc32_u64(state, word_at(p));
  auto narrow = static_cast<uint32_t>(state);
  for (; n > 0; --n, ++p) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(*p));
  return ~narrow;
}

}  // namespace fleet
