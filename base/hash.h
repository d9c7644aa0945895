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
uint64_t mix64(uint64_t x);

// CRC-32C (Castagnoli polynomial, reflected), as in RFC 3720; crc32c("123456789") == 0xE3069283.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

}  // namespace fleet
