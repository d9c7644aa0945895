// The index of a bucket: groups of seven slots, a cache line each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

namespace fleet::fluid::tables {

// A slot is the lower 52 bits of the key's hash, of which the bucket has the upper 12, and the
// row's number in the bucket, 20 bits: the hash has an inverse, so slots are the only place of
// keys. Slots are used from the first on.
struct alignas(64) IndexGroup {
  static constexpr uint32_t kSlots = 7;
  static constexpr uint32_t kMostRows = uint32_t{1} << 20;
  static constexpr int kNumberBits = 12;  // of a word; the others are in `high`
  static constexpr uint64_t kNumberMask = (uint64_t{1} << kNumberBits) - 1;

  uint64_t words[kSlots];
  uint8_t high[kSlots];
  uint8_t used;

  bool full() const { return used == kSlots; }
  // Of the slot that has the hash; kMostRows: none.
  uint32_t number_of(uint64_t hash) const {
    const __m256i wanted = _mm256_set1_epi64x(static_cast<int64_t>(hash << kNumberBits));
    const __m256i mask = _mm256_set1_epi64x(~static_cast<int64_t>(kNumberMask));
    const auto same = [&](const void* four) {
      const __m256i all = _mm256_load_si256(static_cast<const __m256i*>(four));
      const __m256i equal = _mm256_cmpeq_epi64(_mm256_and_si256(all, mask), wanted);
      return static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(equal)));
    };
    const uint32_t found = (same(this) | same(words + 4) << 4) & ((uint32_t{1} << used) - 1);
    return found == 0 ? kMostRows : number(static_cast<uint32_t>(__builtin_ctz(found)));
  }
  uint32_t number(uint32_t slot) const {
    return static_cast<uint32_t>(words[slot] & kNumberMask) | uint32_t{high[slot]} << kNumberBits;
  }
  uint64_t hash(uint32_t slot, uint32_t bucket) const {
    return words[slot] >> kNumberBits | uint64_t{bucket} << 52;
  }
  // Not when it is full.
  void add(uint64_t hash, uint32_t number) {
    words[used] = hash << kNumberBits | (number & kNumberMask);
    high[used] = static_cast<uint8_t>(number >> kNumberBits);
    ++used;
  }
};
static_assert(sizeof(IndexGroup) == 64);

}  // namespace fleet::fluid::tables
