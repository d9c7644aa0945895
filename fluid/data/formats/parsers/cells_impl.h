// Four neighbouring cells of a text at once, in vectors of AVX2: a lane of 64 bits has the first
// eight bytes of a cell.
#pragma once

#include <bit>
#include <cstdint>
#include <immintrin.h>

#include "fluid/data/formats/parsers/number_text_impl.h"

namespace fleet::fluid::data::text {

inline __m256i every_byte(int value) {
  return _mm256_set1_epi8(static_cast<char>(value));
}
// Bytes from 0 to `largest`.
inline __m256i at_most(__m256i bytes, int largest) {
  return _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, every_byte(largest)), bytes);
}

struct Cells4 {
  __m256i bytes;
  __m256i sizes;  // may be more than 8

  // Cells that end at ends[0] to ends[3]; ends[-1] is the end of the one before.
  Cells4(const char* text, const uint32_t* ends) {
    const __m128i before = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ends - 1));
    const __m128i begins = _mm_add_epi32(before, _mm_set1_epi32(1));
    const __m128i behind = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ends));
    sizes = _mm256_cvtepu32_epi64(_mm_sub_epi32(behind, begins));
    // In 32 bits: ends[-1] + 1 may be 0.
    const auto word = [&](int64_t i) {
      return static_cast<int64_t>(load_word(text + (ends[i] + 1)));
    };
    bytes = _mm256_set_epi64x(word(2), word(1), word(0), word(-1));
  }

  __m256i empty() const { return _mm256_cmpeq_epi64(sizes, _mm256_setzero_si256()); }
  __m256i too_long() const { return _mm256_cmpgt_epi64(sizes, _mm256_set1_epi64x(8)); }
  // How far a lane is shifted so that a cell's last byte is its last one, and zeros lie before.
  __m256i shifts() const {
    return _mm256_sub_epi64(_mm256_set1_epi64x(64), _mm256_slli_epi64(sizes, 3));
  }
};

// The values of cells of hexadecimal digits, 0 of empty ones. `errors` gets bits where a cell is
// anything else, or longer than 8.
inline __m256i hex_values(const Cells4& cells, __m256i& errors) {
  const __m256i digits = _mm256_sub_epi8(cells.bytes, every_byte('0'));
  const __m256i letters =
      _mm256_sub_epi8(_mm256_or_si256(cells.bytes, every_byte(0x20)), every_byte('a'));
  const __m256i are_digits = at_most(digits, 9);
  const __m256i known = _mm256_or_si256(are_digits, at_most(letters, 5));
  const __m256i nibbles =
      _mm256_blendv_epi8(_mm256_add_epi8(letters, every_byte(10)), digits, are_digits);
  const __m256i shifts = cells.shifts();
  const __m256i unknown = _mm256_sllv_epi64(_mm256_xor_si256(known, every_byte(-1)), shifts);
  errors = _mm256_or_si256(errors, _mm256_or_si256(unknown, cells.too_long()));
  // Pairs of digits are bytes, which lie in the wrong order with gaps between.
  const __m256i pairs =
      _mm256_maddubs_epi16(_mm256_sllv_epi64(nibbles, shifts), _mm256_set1_epi16(0x0110));
  const __m128i order = _mm_set_epi8(-1, -1, -1, -1, 8, 10, 12, 14, -1, -1, -1, -1, 0, 2, 4, 6);
  return _mm256_shuffle_epi8(pairs, _mm256_broadcastsi128_si256(order));
}

// The values of cells of decimal digits, which may have a '-' before them; NaN of empty ones.
inline __m128 whole_numbers(const Cells4& cells, __m256i& errors) {
  const __m256i negative = _mm256_cmpeq_epi64(
      _mm256_and_si256(cells.bytes, _mm256_set1_epi64x(0xFF)), _mm256_set1_epi64x('-'));
  Cells4 numbers = cells;
  numbers.bytes = _mm256_srlv_epi64(cells.bytes, _mm256_and_si256(negative, _mm256_set1_epi64x(8)));
  numbers.sizes = _mm256_add_epi64(cells.sizes, negative);
  const __m256i digits = _mm256_xor_si256(numbers.bytes, every_byte('0'));
  const __m256i shifts = numbers.shifts();
  const __m256i unknown =
      _mm256_sllv_epi64(_mm256_xor_si256(at_most(digits, 9), every_byte(-1)), shifts);
  const __m256i bare_sign = _mm256_and_si256(negative, numbers.empty());
  errors = _mm256_or_si256(_mm256_or_si256(errors, unknown),
                           _mm256_or_si256(numbers.too_long(), bare_sign));
  const __m256i twos =
      _mm256_maddubs_epi16(_mm256_sllv_epi64(digits, shifts), _mm256_set1_epi16(0x010A));
  const __m256i fours = _mm256_madd_epi16(twos, _mm256_set1_epi32(1 << 16 | 100));
  const __m256i values = _mm256_add_epi64(_mm256_mul_epu32(fours, _mm256_set1_epi64x(10000)),
                                          _mm256_srli_epi64(fours, 32));
  // The lower halves of the lanes.
  const __m256i halves = _mm256_set_epi32(7, 5, 3, 1, 6, 4, 2, 0);
  const auto narrow = [&](__m256i lanes) {
    return _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(lanes, halves));
  };
  const __m128 sign = _mm_castsi128_ps(_mm_slli_epi32(narrow(negative), 31));
  const __m128 signed_values = _mm_xor_ps(_mm_cvtepi32_ps(narrow(values)), sign);
  return _mm_or_ps(signed_values, _mm_castsi128_ps(narrow(cells.empty())));
}

// ln(1 + max(x, 0)) of four values from float's range, and `missing` for NaN. 1 + x = 2^e m with m
// from 1/sqrt(2) to sqrt(2), and ln(m) = 2 atanh(s) with s = (m - 1) / (m + 1), by its series.
inline __m128 log1p_of_four(__m128 values, __m128 missing) {
  const __m256i root_half = _mm256_set1_epi64x(0x3FE6A09E667F3BCD);
  const __m256d magic = _mm256_set1_pd(0x1.8p52);
  const __m256d one = _mm256_set1_pd(1);
  const __m256d x = _mm256_add_pd(_mm256_cvtps_pd(_mm_max_ps(values, _mm_setzero_ps())), one);
  const __m256i above = _mm256_sub_epi64(_mm256_castpd_si256(x), root_half);
  const __m256i mantissa = _mm256_and_si256(above, _mm256_set1_epi64x(0x000FFFFFFFFFFFFF));
  const __m256d m = _mm256_castsi256_pd(_mm256_add_epi64(mantissa, root_half));
  // Small whole numbers become doubles by their bits.
  const __m256i exponent = _mm256_srli_epi64(above, 52);
  const __m256d e = _mm256_sub_pd(
      _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(magic), exponent)), magic);
  const __m256d s = _mm256_div_pd(_mm256_sub_pd(m, one), _mm256_add_pd(m, one));
  const __m256d t = _mm256_mul_pd(s, s);
  __m256d series = _mm256_set1_pd(1.0 / 11);
  for (const double term : {1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1.0}) {
    series = _mm256_add_pd(_mm256_mul_pd(series, t), _mm256_set1_pd(term));
  }
  const __m256d log = _mm256_add_pd(_mm256_mul_pd(e, _mm256_set1_pd(0.69314718055994530942)),
                                    _mm256_mul_pd(_mm256_add_pd(s, s), series));
  return _mm_blendv_ps(_mm256_cvtpd_ps(log), missing, _mm_cmpunord_ps(values, values));
}

}  // namespace fleet::fluid::data::text
