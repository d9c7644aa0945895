#include "base/hash.h"

#include <array>
#include <bit>
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

constexpr std::array<uint64_t, 5> kXxPrimes = {0x9E3779B185EBCA87ULL, 0xC2B2AE3D27D4EB4FULL,
                                               0x165667B19E3779F9ULL, 0x85EBCA77C2B2AE63ULL,
                                               0x27D4EB2F165667C5ULL};

uint64_t xx_round(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kXxPrimes[1], 31) * kXxPrimes[0];
}

template <class Word>
uint64_t xx_word(const char* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
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

uint64_t xxh64(std::string_view bytes, uint64_t seed) {
  const char* p = bytes.data();
  const char* const end = p + bytes.size();
  uint64_t hash = seed + kXxPrimes[4];
  if (bytes.size() >= 32) {
    std::array<uint64_t, 4> lanes = {seed + kXxPrimes[0] + kXxPrimes[1], seed + kXxPrimes[1], seed,
                                     seed - kXxPrimes[0]};
    for (; end - p >= 32; p += 32) {
      for (size_t i = 0; i < 4; ++i) lanes[i] = xx_round(lanes[i], xx_word<uint64_t>(p + 8 * i));
    }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
           std::rotl(lanes[3], 18);
    for (const uint64_t lane : lanes) {
      hash = (hash ^ xx_round(0, lane)) * kXxPrimes[0] + kXxPrimes[3];
    }
  }
  hash += bytes.size();
  for (; end - p >= 8; p += 8) {
    hash ^= xx_round(0, xx_word<uint64_t>(p));
    hash = std::rotl(hash, 27) * kXxPrimes[0] + kXxPrimes[3];
  }
  if (end - p >= 4) {
    hash ^= xx_word<uint32_t>(p) * kXxPrimes[0];
    hash = std::rotl(hash, 23) * kXxPrimes[1] + kXxPrimes[2];
    p += 4;
  }
  for (; p < end; ++p) {
    hash = std::rotl(hash ^ static_cast<unsigned char>(*p) * kXxPrimes[4], 11) * kXxPrimes[0];
  }
  hash = (hash ^ hash >> 33) * kXxPrimes[1];
  hash = (hash ^ hash >> 29) * kXxPrimes[2];
  return hash ^ hash >> 32;
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
