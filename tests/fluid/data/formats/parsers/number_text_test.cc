#include <charconv>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/hash.h"
#include "fluid/data/formats/parsers/number_text_impl.h"
#include "fluid/data/formats/streams/block_reader.h"

namespace fleet::fluid::data {
namespace {

// A text with what may be read behind it: other digits, which must not count.
template <class Value, class Parse>
bool parsed(const std::string& text, Value& value, const Parse& parse) {
  const std::string padded = text + std::string(kTextPadding, '7');
  return parse(padded.data(), text.size(), value);
}

bool id(const std::string& text, uint64_t& value) {
  return parsed(text, value, text::parse_id);
}
bool real(const std::string& text, float& value) {
  return parsed(text, value, text::parse_float);
}
bool hex(const std::string& text, uint64_t& value) {
  return parsed(text, value, text::parse_hex);
}

TEST(NumberText, IdsOfEveryLengthAreExact) {
  uint64_t value = 0;
  std::string digits;
  for (size_t n = 1; n <= 20; ++n) {
    digits += static_cast<char>('0' + (n % 9));
    ASSERT_TRUE(id(digits, value)) << digits;
    EXPECT_EQ(value, std::strtoull(digits.c_str(), nullptr, 10)) << digits;
    ASSERT_TRUE(id("000" + digits, value));
    EXPECT_EQ(value, std::strtoull(digits.c_str(), nullptr, 10)) << digits;
  }
}

TEST(NumberText, IdsHaveAllBitsOfBothKinds) {
  uint64_t value = 0;
  EXPECT_TRUE(id("18446744073709551615", value));
  EXPECT_EQ(value, ~uint64_t{0});
  EXPECT_TRUE(id("-1", value));
  EXPECT_EQ(value, ~uint64_t{0});
  EXPECT_TRUE(id("-9223372036854775808", value));
  EXPECT_EQ(value, uint64_t{1} << 63);
  EXPECT_TRUE(id("+5", value));
  EXPECT_EQ(value, 5u);
}

TEST(NumberText, WhatIsNoIdIsRefused) {
  uint64_t value = 0;
  for (const std::string text :
       {"", "-", "+", "18446744073709551616", "99999999999999999999999", "-9223372036854775809",
        "1x", "x1", "1.0", "0x10", "12345678a", "1234567890123456 ", "--1", "+-1", "\xff"}) {
    EXPECT_FALSE(id(text, value)) << text;
  }
  EXPECT_FALSE(id(std::string("1\0002", 3), value));
}

// Every byte but the digits is refused at every place.
TEST(NumberText, EveryWrongByteIsSeenAtEveryPlace) {
  uint64_t value = 0;
  float number = 0;
  for (const size_t size : {1, 4, 8, 9, 13, 16}) {
    for (size_t at = 0; at < size; ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string text(size, '5');
        text[at] = static_cast<char>(byte);
        const bool digit = byte >= '0' && byte <= '9';
        const bool sign = at == 0 && size > 1 && (byte == '-' || byte == '+');
        EXPECT_EQ(id(text, value), digit || sign) << size << " " << at << " " << byte;
        const bool point = size > 1 && byte == '.';
        if (byte != 'e' && byte != 'E') {
          EXPECT_EQ(real(text, number), digit || sign || point) << size << " " << at << " " << byte;
        }
        if (size > 16) continue;
        const bool letter = (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
        EXPECT_EQ(hex(text, value), digit || letter) << size << " " << at << " " << byte;
      }
    }
  }
}

TEST(NumberText, HexadecimalDigitsAreExact) {
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint64_t expected = mix64(i) >> (i % 64);
    std::string text = std::string(17, '\0');
    text.resize(static_cast<size_t>(std::to_chars(text.data(), text.data() + 16, expected, 16).ptr -
                                    text.data()));
    if (i % 2 == 1) {
      for (char& c : text) c = static_cast<char>(std::toupper(c));
    }
    uint64_t value = 0;
    ASSERT_TRUE(hex(text, value)) << text;
    EXPECT_EQ(value, expected) << text;
  }
  uint64_t value = 0;
  EXPECT_FALSE(hex("", value));
  EXPECT_FALSE(hex("12345678123456781", value));
}

// Correctly rounded, as strtof does.
TEST(NumberText, FloatsAreThoseOfStrtof) {
  for (uint64_t i = 0; i < 200000; ++i) {
    const uint64_t random = mix64(i);
    std::string text = std::to_string(random >> (random % 60));
    if (i % 5 != 0) text.insert(mix64(random) % (text.size() + 1), ".");
    if (i % 3 == 0) text += "e" + std::to_string(static_cast<int>(random % 70) - 35);
    if (i % 2 == 0) text.insert(0, "-");
    const float expected = std::strtof(text.c_str(), nullptr);
    float value = 0;
    if (std::isinf(expected)) {
      EXPECT_FALSE(real(text, value)) << text;
      continue;
    }
    ASSERT_TRUE(real(text, value)) << text;
    EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(expected)) << text;
  }
}

// Decimals that lie in the middle between two floats, or a little beside it.
TEST(NumberText, FloatsBetweenTwoAreRoundedOnce) {
  for (uint32_t i = 0; i < 2000; ++i) {
    const uint64_t odd = (uint64_t{1} << 24) + 2 * (mix64(i) >> 41) + 1;  // needs 25 bits
    const double middle = static_cast<double>(odd);
    for (const double number : {middle, middle + 0.0001, middle - 0.0001}) {
      std::string text(32, '\0');
      text.resize(static_cast<size_t>(std::snprintf(text.data(), 32, "%.4f", number)));
      float value = 0;
      ASSERT_TRUE(real(text, value));
      EXPECT_EQ(value, std::strtof(text.c_str(), nullptr)) << text;
    }
  }
}

TEST(NumberText, FloatsAtTheEdges) {
  float value = 1;
  EXPECT_TRUE(real("1e-60", value));
  EXPECT_EQ(value, 0);
  EXPECT_TRUE(real("1e-600", value));
  EXPECT_EQ(value, 0);
  EXPECT_TRUE(real("1e-45", value));
  EXPECT_GT(value, 0);
  EXPECT_TRUE(real("-0", value));
  EXPECT_TRUE(std::signbit(value));
  EXPECT_TRUE(real("nan", value));
  EXPECT_TRUE(std::isnan(value));
  EXPECT_TRUE(real("-inf", value));
  EXPECT_TRUE(std::isinf(value));
  for (const std::string text : {"", "-", ".", "-.", "1e", "1e60", "-1e600", "1..2", "0x1p3", "+-1",
                                 "1 2", "1,5", "abc", "00000000000000000000000000.0.0"}) {
    EXPECT_FALSE(real(text, value)) << text;
  }
}

}  // namespace
}  // namespace fleet::fluid::data
