#include "tools/axis.h"

#include <gmock/gmock.h>

namespace fleet::tools {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::Pointwise;

TEST(Axis, LinearEndsAreRoundAndCoverTheValues) {
  const Axis axis = Axis::linear(0, 973, 8);
  EXPECT_EQ(axis.low(), 0);
  EXPECT_EQ(axis.high(), 1000);
  EXPECT_THAT(axis.ticks(), ElementsAre(0, 200, 400, 600, 800, 1000));
  EXPECT_DOUBLE_EQ(axis.position(250), 0.25);
}

TEST(Axis, LinearAxisOfOneValueIsNotEmpty) {
  const Axis axis = Axis::linear(3, 3, 4);
  EXPECT_LT(axis.low(), axis.high());
}

TEST(Axis, LinearAxisReachesBelowZero) {
  const Axis axis = Axis::for_values({-3.2, 4.0}, 4);
  EXPECT_LE(axis.low(), -3.2);
  EXPECT_GE(axis.high(), 4.0);
}

TEST(Axis, DecadesAreDrawnLogarithmically) {
  const Axis axis = Axis::for_values({2.3, 0.07}, 6);
  ASSERT_TRUE(axis.is_logarithmic());
  EXPECT_THAT(axis.ticks(), Pointwise(DoubleEq(), {0.05, 0.1, 0.2, 0.5, 1.0, 2.0}));
  EXPECT_DOUBLE_EQ(axis.position(0.05), 0);
  EXPECT_LT(axis.position(2.3), 1);
  EXPECT_NEAR(axis.position(1) - axis.position(0.1), axis.position(0.5) - axis.position(0.05),
              1e-12);
}

TEST(Axis, ValuesThatTouchZeroStayLinear) {
  EXPECT_FALSE(Axis::for_values({0.0, 100.0}, 6).is_logarithmic());
}

TEST(Axis, NoValuesGiveAUsableAxis) {
  const Axis axis = Axis::for_values({}, 6);
  EXPECT_EQ(axis.position(0.5), 0.5);
}

TEST(TickLabel, HasNoNeedlessDigits) {
  EXPECT_EQ(tick_label(0.1 + 0.2), "0.3");
  EXPECT_EQ(tick_label(1e-15), "0");
  EXPECT_EQ(tick_label(250), "250");
  EXPECT_EQ(tick_label(1000), "1,000");
  EXPECT_EQ(tick_label(1250000), "1,250,000");
}

}  // namespace
}  // namespace fleet::tools
