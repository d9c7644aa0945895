// Stable hashes, the same on every machine and in every build. Not for security.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fleet {

// FNV-1a, 64 bits (Fowler, Noll, Vo).
uint64_t fnv1a(std::string_view bytes, uint64_t seed = 0xcbf29ce484222325ULL);

// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection with good avalanche.
inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// The number whose mix64() it is.
inline uint64_t unmix64(uint64_t x) {
  x = (x ^ (x >> 31) ^ (x >> 62)) * 0x319642b2d24d8ec3ULL;
  x = (x ^ (x >> 27) ^ (x >> 54)) * 0x96de1b173f119089ULL;
  return (x ^ (x >> 30) ^ (x >> 60)) - 0x9e3779b97f4a7c15ULL;
}

// XXH64 of xxHash (Collet; its specification 0.1.1). Paddle's `hash` op computes xxh64 of the bytes
// of a row of ids with the seeds 0, 1, …, modulo mod_by.
uint64_t xxh64(std::string_view bytes, uint64_t seed = 0);

// CRC-32C (Castagnoli polynomial, reflected), as in RFC 3720; crc32c("123456789") == 0xE3069283.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace fleet
