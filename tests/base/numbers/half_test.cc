#include "base/numbers/half.h"

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace fleet {
namespace {

float from_half(uint16_t bits) {
  float value = 0;
  float_of_float16(&bits, &value, 1);
  return value;
}
uint16_t to_half(float value) {
  uint16_t bits = 0;
  float16_of_float(&value, &bits, 1);
  return bits;
}
float from_brain(uint16_t bits) {
  float value = 0;
  float_of_bfloat16(&bits, &value, 1);
  return value;
}
uint16_t to_brain(float value) {
  uint16_t bits = 0;
  bfloat16_of_float(&value, &bits, 1);
  return bits;
}

TEST(HalfTest, KnownValuesOfFloat16) {
  EXPECT_EQ(to_half(1), 0x3c00);
  EXPECT_EQ(to_half(-2), 0xc000);
  EXPECT_EQ(from_half(0x7bff), 65504);
  EXPECT_EQ(from_half(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(to_half(65520), 0x7c00) << "halfway to the next power: infinite";
  EXPECT_EQ(to_half(65519.99F), 0x7bff);
  EXPECT_EQ(to_half(std::ldexp(1.0F, -25)), 0) << "a tie, to even";
  EXPECT_EQ(to_half(1 + std::ldexp(1.0F, -11)), 0x3c00) << "a tie, to even";
  EXPECT_EQ(to_half(1 + 3 * std::ldexp(1.0F, -11)), 0x3c02) << "a tie, to even";
}

TEST(HalfTest, KnownValuesOfBfloat16) {
  EXPECT_EQ(to_brain(1), 0x3f80);
  EXPECT_EQ(from_brain(0xc000), -2);
  EXPECT_EQ(to_brain(1 + std::ldexp(1.0F, -8)), 0x3f80) << "a tie, to even";
  EXPECT_EQ(to_brain(1 + 3 * std::ldexp(1.0F, -8)), 0x3f82) << "a tie, to even";
  EXPECT_EQ(to_brain(std::numeric_limits<float>::max()), 0x7f80) << "rounds up to infinite";
}

TEST(HalfTest, EveryWordComesBackFromFloat) {
  std::vector<uint16_t> words(1 << 16);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  std::vector<float> floats(words.size());
  std::vector<uint16_t> again(words.size());
  const auto check = [&](uint16_t quiet) {
    for (size_t i = 0; i < words.size(); ++i) {
      const auto expected = std::isnan(floats[i]) ? words[i] | quiet : words[i];
      ASSERT_EQ(again[i], expected) << i;
    }
  };
  float_of_float16(words.data(), floats.data(), words.size());
  float16_of_float(floats.data(), again.data(), words.size());
  check(0x200);
  float_of_bfloat16(words.data(), floats.data(), words.size());
  bfloat16_of_float(floats.data(), again.data(), words.size());
  check(0x40);
}

TEST(HalfTest, AnyNumberOfElementsAndNothingBehindThem) {
  for (size_t n = 0; n < 20; ++n) {
    const std::vector<float> values(n, 3.0F);
    std::vector<uint16_t> words(n + 1, 7);
    float16_of_float(values.data(), words.data(), n);
    std::vector<float> back(n + 1, 9);
    float_of_float16(words.data(), back.data(), n);
    EXPECT_EQ(words[n], 7);
    EXPECT_EQ(back[n], 9);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(back[i], 3.0F);
  }
}

TEST(HalfTest, NaNsStayNaNs) {
  const float nan = std::bit_cast<float>(0x7f800001U);  // a signalling one without upper bits
  EXPECT_TRUE(std::isnan(from_half(to_half(nan))));
  EXPECT_TRUE(std::isnan(from_brain(to_brain(nan))));
}

}  // namespace
}  // namespace fleet
