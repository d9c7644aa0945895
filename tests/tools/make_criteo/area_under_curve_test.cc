#include "tools/make_criteo/area_under_curve.h"

#include <gtest/gtest.h>

#include "base/philox.h"

namespace fleet::tools {
namespace {

double by_pairs(const std::vector<double>& positives, const std::vector<double>& negatives) {
  double right = 0;
  for (const double p : positives) {
    for (const double n : negatives) right += p > n ? 1 : p == n ? 0.5 : 0;
  }
  return right / static_cast<double>(positives.size() * negatives.size());
}

TEST(AreaUnderCurve, IsTheShareOfPairsInTheRightOrder) {
  const RandomKey key = RandomKey::of(1, "scores");
  for (const int levels : {3, 20, 1000000}) {
    for (uint64_t turn = 0; turn < 20; ++turn) {
      std::vector<double> scores[2];
      for (uint64_t i = 0; i < 100; ++i) {
        const double drawn = levels * uniform_double(key, i, turn);
        scores[uniform_double(key, 1000 + i, turn) < 0.3 ? 0 : 1].push_back(
            static_cast<double>(static_cast<int>(drawn)));
      }
      const double expected = by_pairs(scores[0], scores[1]);
      EXPECT_DOUBLE_EQ(area_under_curve(scores[0], scores[1]), expected);
    }
  }
}

TEST(AreaUnderCurve, OfOneKindAloneIsNothing) {
  std::vector<double> some = {1, 2};
  std::vector<double> none;
  EXPECT_EQ(area_under_curve(some, none), 0);
  EXPECT_EQ(area_under_curve(none, some), 0);
}

}  // namespace
}  // namespace fleet::tools
