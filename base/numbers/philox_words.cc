#include "base/numbers/philox_words.h"

#include <algorithm>
#include <array>
#include <immintrin.h>

#include "base/numbers/philox_constants_impl.h"

namespace fleet {
namespace {

using namespace philox_detail;

constexpr size_t kBlockWords = 4;

// Four blocks: word w of block k is the lower half of lane k of x[w]. What is in the upper halves
// does not matter.
struct FourBlocks {
  __m256i x[4];

  FourBlocks(uint64_t block, uint64_t stream) {
    const __m256i blocks = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(block)),
                                            _mm256_set_epi64x(3, 2, 1, 0));
    const __m256i streams = _mm256_set1_epi64x(static_cast<int64_t>(stream));
    x[0] = blocks;
    x[1] = _mm256_srli_epi64(blocks, 32);
    x[2] = streams;
    x[3] = _mm256_srli_epi64(streams, 32);
  }

  void advance(RandomKey key) {
    const __m256i p0 = _mm256_mul_epu32(x[0], _mm256_set1_epi64x(int64_t{kMultiplier0}));
    const __m256i p1 = _mm256_mul_epu32(x[2], _mm256_set1_epi64x(int64_t{kMultiplier1}));
    const auto mixed = [](__m256i product, __m256i word, uint32_t key_word) {
      return _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product, 32), word),
                              _mm256_set1_epi64x(key_word));
    };
    x[0] = mixed(p1, x[1], key.low);
    x[1] = p1;
    x[2] = mixed(p0, x[3], key.high);
    x[3] = p0;
  }

  void store(uint32_t* words) const {
    const auto pairs = [](__m256i low, __m256i high) {
      return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi64x(0xFFFFFFFF)),
                             _mm256_slli_epi64(high, 32));
    };
    const __m256i first = pairs(x[0], x[1]);
    const __m256i second = pairs(x[2], x[3]);
    const __m256i even = _mm256_unpacklo_epi64(first, second);  // blocks 0 and 2
    const __m256i odd = _mm256_unpackhi_epi64(first, second);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words),
                        _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + 2 * kBlockWords),
                        _mm256_permute2x128_si256(even, odd, 0x31));
  }
};

// Two fours at a time: the one's products are under way while the other's are used.
constexpr size_t kBlocksAtOnce = 8;

void eight_blocks(RandomKey key, uint64_t block, uint64_t stream, uint32_t* words) {
  FourBlocks first(block, stream);
  FourBlocks second(block + kBlocksAtOnce / 2, stream);
  for (int round = 0; round < kRounds; ++round) {
    first.advance(key);
    second.advance(key);
    key.low += kWeyl0;
    key.high += kWeyl1;
  }
  first.store(words);
  second.store(words + kBlocksAtOnce / 2 * kBlockWords);
}

}  // namespace

void philox_words(RandomKey key, uint64_t first, uint64_t stream, std::span<uint32_t> words) {
  constexpr size_t kAtOnce = kBlocksAtOnce * kBlockWords;
  while (!words.empty()) {
    const size_t skipped = first % kBlockWords;
    if (skipped == 0 && words.size() >= kAtOnce) {
      eight_blocks(key, first / kBlockWords, stream, words.data());
      first += kAtOnce;
      words = words.subspan(kAtOnce);
      continue;
    }
    const auto block = philox(key, first / kBlockWords, stream);
    const size_t count = std::min(kBlockWords - skipped, words.size());
    std::copy_n(block.begin() + skipped, count, words.begin());
    first += count;
    words = words.subspan(count);
  }
}

void uniform_floats(RandomKey key, uint64_t first, uint64_t stream, std::span<float> values) {
  std::array<uint32_t, 1024> words;
  while (!values.empty()) {
    const size_t count = std::min(words.size(), values.size());
    philox_words(key, first, stream, std::span(words).first(count));
    for (size_t i = 0; i < count; ++i) values[i] = to_float(words[i]);
    first += count;
    values = values.subspan(count);
  }
}

}  // namespace fleet
