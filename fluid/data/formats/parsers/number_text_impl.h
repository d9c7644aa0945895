// Numbers as texts have them, eight characters at a time. Every function may read up to
// kTextPadding bytes behind its text. The method: Lemire, "Number Parsing at a Gigabyte per
// Second", 2021; Langdale and Lemire, "Parsing Gigabytes of JSON per Second", 2019.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <immintrin.h>
#include <limits>
#include <string_view>

namespace fleet::fluid::data::text {

inline constexpr uint64_t kEveryByte = 0x0101010101010101;
inline constexpr uint64_t kHighBits = 0x80 * kEveryByte;

inline uint64_t load_word(const char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

// Eight bytes of values 0 to 9, the first the most significant digit.
inline uint64_t value_of_digits(uint64_t digits) {
  digits = digits * 10 + (digits >> 8);
  return ((digits & 0x000000FF000000FF) * 0x000F424000000064 +
          (digits >> 16 & 0x000000FF000000FF) * 0x0000271000000001) >>
         32;
}

inline bool all_digits(uint64_t values) {
  return (((values + 0x76 * kEveryByte) | values) & kHighBits) == 0;
}

// The first n (1 to 8) characters as values, zeros before them.
inline uint64_t digits_at(const char* p, size_t n) {
  return (load_word(p) ^ 0x30 * kEveryByte) << (64 - 8 * n);
}

// Any number of digits; false for anything else, or too large a number.
bool parse_long_digits(const char* p, size_t n, uint64_t& value);

// For shifting 16 bytes so that the first n become the last ones, zeros before them.
inline constexpr auto kShifts = [] {
  std::array<std::array<int8_t, 16>, 17> shifts{};
  for (int n = 0; n <= 16; ++n) {
    for (int i = 0; i < 16; ++i) {
      shifts[static_cast<size_t>(n)][static_cast<size_t>(i)] =
          static_cast<int8_t>(i < 16 - n ? -1 : i - (16 - n));
    }
  }
  return shifts;
}();

// Without a branch on how many there are, up to 16.
inline bool parse_digits(const char* p, size_t n, uint64_t& value) {
  if (n - 1 >= 16) return parse_long_digits(p, n, value);
  const auto vector_at = [](const void* at) {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  };
  const __m128i digits = _mm_shuffle_epi8(_mm_sub_epi8(vector_at(p), _mm_set1_epi8('0')),
                                          vector_at(kShifts[n].data()));
  const __m128i above_9 = _mm_subs_epu8(digits, _mm_set1_epi8(9));
  const __m128i twos = _mm_maddubs_epi16(digits, _mm_set1_epi16(0x010A));
  const __m128i fours = _mm_madd_epi16(twos, _mm_set1_epi32(1 << 16 | 100));
  const __m128i packed = _mm_packus_epi32(fours, fours);
  const __m128i eights = _mm_madd_epi16(packed, _mm_set1_epi32(1 << 16 | 10000));
  const auto halves = static_cast<uint64_t>(_mm_cvtsi128_si64(eights));
  value = (halves & 0xFFFFFFFF) * 100000000 + (halves >> 32);
  return _mm_testz_si128(above_9, above_9) != 0;
}

// A uint64, or a signed number of which the bits are those of an int64.
inline bool parse_id(const char* p, size_t n, uint64_t& value) {
  if (n == 0) return false;
  if (*p != '-') {
    const size_t sign = *p == '+' ? 1 : 0;
    return parse_digits(p + sign, n - sign, value);
  }
  if (!parse_digits(p + 1, n - 1, value) || value > uint64_t{1} << 63) return false;
  value = -value;
  return true;
}

// 1 to 16 hexadecimal digits.
bool parse_long_hex(const char* p, size_t n, uint64_t& value);

// The value of eight bytes that are hexadecimal digits, the first the most significant one.
inline uint64_t value_of_hex(uint64_t text) {
  uint64_t x = (text & 0x0F * kEveryByte) + (text >> 6 & kEveryByte) * 9;
  x = (x << 4 | x >> 8) & 0x00FF00FF00FF00FF;
  x = (x << 8 | x >> 16) & 0x0000FFFF0000FFFF;
  return (x << 16 | x >> 32) & 0xFFFFFFFF;
}

// Whether eight bytes are hexadecimal digits. Bytes with bit 6 can only be letters, others only
// decimal digits.
inline bool all_hex(uint64_t text) {
  const uint64_t letters = (text >> 6 & kEveryByte) * 0xFF;
  const uint64_t as_digits = text ^ 0x30 * kEveryByte;
  // With the highest bit set, no byte borrows from another.
  const uint64_t as_letters =
      ((((text & ~(0x20 * kEveryByte)) | kHighBits) - 0x41 * kEveryByte) ^ kHighBits) & letters;
  const uint64_t above = (as_digits + 0x76 * kEveryByte) & ~letters;
  const uint64_t above_f = (as_letters + 0x7A * kEveryByte) | as_letters;
  return ((above | above_f | text) & kHighBits) == 0;
}

inline bool parse_hex(const char* p, size_t n, uint64_t& value) {
  if (n - 1 >= 8) return parse_long_hex(p, n, value);
  const size_t shift = 64 - 8 * n;
  const uint64_t text = load_word(p) << shift | (0x30 * kEveryByte & ((uint64_t{1} << shift) - 1));
  value = value_of_hex(text);
  return all_hex(text);
}

// As std::from_chars, with a '+' before it, too, and 0 for what is too small; false for what is no
// number, or too large for a float. Correctly rounded.
bool parse_any_float(const char* p, size_t n, float& value);

inline constexpr std::array<float, 11> kFloatPowers = {1e0f, 1e1f, 1e2f, 1e3f, 1e4f, 1e5f,
                                                       1e6f, 1e7f, 1e8f, 1e9f, 1e10f};

inline bool parse_float(const char* p, size_t n, float& value) {
  const bool negative = n > 1 && *p == '-';
  const char* const first = p + negative;
  const size_t size = n - negative;
  if (size - 1 >= 8) return parse_any_float(p, n, value);
  uint64_t digits = digits_at(first, size);
  const uint64_t dots = digits ^ ('.' ^ '0') * kEveryByte;
  // The lowest byte that is zero, marked in its highest bit; what is above it may be marked, too.
  const uint64_t marks = (dots - kEveryByte) & ~dots & kHighBits;
  size_t decimals = 0;
  if (marks != 0) {
    if (size == 1) return parse_any_float(p, n, value);
    const int bit = std::countr_zero(marks);  // 7 of the dot's byte
    const uint64_t before = (uint64_t{1} << (bit - 7)) - 1;
    decimals = static_cast<size_t>(63 - bit) / 8;
    digits = (digits & before) << 8 | (digits & ~(before << 8 | 0xFF));
  }
  if (!all_digits(digits)) return parse_any_float(p, n, value);
  const uint64_t whole = value_of_digits(digits);
  if (whole > 1 << 24) return parse_any_float(p, n, value);
  // Both are exact, so the quotient is rounded once.
  value = static_cast<float>(whole) / kFloatPowers[decimals];
  if (negative) value = -value;
  return true;
}

}  // namespace fleet::fluid::data::text
