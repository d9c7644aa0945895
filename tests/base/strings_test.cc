#include "base/strings.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <limits>
#include <random>

namespace fleet {
namespace {

template <class T>
std::string streamed(const T& value) {
  std::ostringstream out;
  out << value;
  return std::move(out).str();
}

template <class T>
void expect_streamed(const T& value) {
  EXPECT_EQ(str_cat(value), streamed(value));
}

template <class T>
void expect_limits() {
  using Limits = std::numeric_limits<T>;
  for (const T value : {Limits::min(), Limits::lowest(), Limits::max(), T(0), T(1), T(42)}) {
    expect_streamed(value);
  }
}

TEST(StrCat, WritesOrdinaryTypesAsAStreamDoes) {
  EXPECT_EQ(str_cat(), "");
  EXPECT_EQ(str_cat("rank ", 3, ' ', std::string("of "), std::string_view("four"), '\0', -1),
            std::string("rank 3 of four\0-1", 17));
  expect_limits<short>();
  expect_limits<unsigned short>();
  expect_limits<int>();
  expect_limits<unsigned>();
  expect_limits<long>();
  expect_limits<unsigned long>();
  expect_limits<long long>();
  expect_limits<unsigned long long>();
  expect_limits<char>();
  expect_limits<signed char>();
  expect_limits<unsigned char>();
  expect_limits<bool>();
  char buffer[8] = "abc";
  expect_streamed(buffer);
  expect_streamed(static_cast<const char*>(buffer));
  expect_streamed(std::filesystem::path("a b"));
  enum Old { kSeven = 7 };
  expect_streamed(kSeven);
  const std::vector<bool> flags = {true, false};
  EXPECT_EQ(join(flags, ","), "1,0");
  EXPECT_EQ(join(std::vector<double>{0.1, 1e20}, ", "), "0.1, 1e+20");
}

TEST(StrCat, WritesRealsWithSixDigitsAsAStreamDoes) {
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.0,
                             -0.0,
                             0.1,
                             0.25,
                             1e5,
                             999999.0,
                             999999.5,
                             1e6,
                             123456.5,
                             123457.5,
                             1e-4,
                             0.00012345678,
                             9.9999995e-5,
                             1e-5,
                             1e100,
                             -1e-100,
                             100.0,
                             1234567.0,
                             Limits::min(),
                             Limits::max(),
                             Limits::denorm_min(),
                             Limits::infinity(),
                             -Limits::infinity(),
                             Limits::quiet_NaN(),
                             -Limits::quiet_NaN()}) {
    expect_streamed(value);
    expect_streamed(static_cast<float>(value));
  }
  std::mt19937_64 random(7);
  std::ostringstream out;
  for (int i = 0; i < 200000; ++i) {
    const uint64_t bits = random();
    double any = 0;
    std::memcpy(&any, &bits, sizeof any);
    // Of all sizes, of ordinary ones, and with few decimals, where digits are rounded.
    const double ordinary = std::ldexp(static_cast<double>(bits >> 11), -44);
    const double few = static_cast<double>(bits % 100000000) / 1000;
    for (const double value : {any, ordinary, few}) {
      out.str("");
      out << value << static_cast<float>(value);
      ASSERT_EQ(str_cat(value, static_cast<float>(value)), out.str()) << std::hexfloat << value;
    }
  }
}

TEST(HexDigits, AreSixteen) {
  EXPECT_EQ(hex_digits(0), "0000000000000000");
  EXPECT_EQ(hex_digits(0xfedcba9876543210), "fedcba9876543210");
}

}  // namespace
}  // namespace fleet
