#include "base/philox.h"

#include <cmath>
#include <gtest/gtest.h>
#include <vector>

namespace fleet {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers of the reference implementation (Random123, kat_vectors, philox4x32 10).
TEST(Philox, MatchesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff}, ~0ULL, ~0ULL),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0xa4093822, 0x299f31d0}, 0x85a308d3243f6a88ULL, 0x0370734413198a2eULL),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeysDependOnSeedAndName) {
  const auto key = RandomKey::of(0, "fc_0.w_0");
  EXPECT_NE(key.low, RandomKey::of(1, "fc_0.w_0").low);
  EXPECT_NE(key.low, RandomKey::of(0, "fc_0.w_1").low);
}

TEST(Philox, UniformValuesFillTheUnitIntervalEvenly) {
  const auto key = RandomKey::of(7, "uniform");
  constexpr int kBins = 16;
  constexpr int kDraws = 160000;
  std::vector<int> bins(kBins);
  for (int i = 0; i < kDraws; ++i) {
    const float u = uniform_float(key, static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    ++bins[static_cast<size_t>(u * kBins)];
  }
  double chi_square = 0;
  constexpr double kExpected = double{kDraws} / kBins;
  for (const int count : bins) chi_square += (count - kExpected) * (count - kExpected) / kExpected;
  EXPECT_LT(chi_square, 37.7);  // 15 degrees of freedom, p = 0.001
}

TEST(Philox, NormalValuesHaveTheMomentsOfTheStandardNormal) {
  const auto key = RandomKey::of(7, "normal");
  constexpr int kDraws = 100000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double z = normal_double(key, static_cast<uint64_t>(i));
    sum += z;
    squares += z * z;
  }
  EXPECT_NEAR(sum / kDraws, 0.0, 0.015);
  EXPECT_NEAR(squares / kDraws, 1.0, 0.02);
}

TEST(Philox, StreamsDiffer) {
  const auto key = RandomKey::of(0, "dropout");
  EXPECT_NE(uniform_float(key, 3, 0), uniform_float(key, 3, 1));
}

}  // namespace
}  // namespace fleet
