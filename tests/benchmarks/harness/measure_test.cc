#include "benchmarks/harness/measure.h"

#include <gmock/gmock.h>

namespace fleet::benchmarks {
namespace {

using ::testing::ElementsAre;

TEST(Rounds, TheSideThatGoesFirstAlternates) {
  std::string order;
  const auto note = [&order](char side) {
    return [&order, side] {
      order += side;
      return 1.0;
    };
  };
  Rounds().pairs(4, note('o'), note('p'));
  EXPECT_EQ(order, "oppooppo");
}

TEST(Rounds, APairHoldsWhatWasMeasuredInTheSameRound) {
  double ours = 0;
  double peer = 0;
  const Pairs pairs = Rounds().pairs(
      3, [&] { return ours += 1; }, [&] { return peer += 2; });
  EXPECT_THAT(pairs.ours, ElementsAre(1, 2, 3));
  EXPECT_THAT(pairs.peer, ElementsAre(2, 4, 6));
}

TEST(Rounds, OursAloneIsMeasuredOnceAndThePeerNever) {
  int peers = 0;
  const Rounds rounds(Rounds::Side::kOurs);
  const Pairs pairs = rounds.pairs(
      5, [] { return 7.0; }, [&] { return static_cast<double>(++peers); });
  EXPECT_THAT(pairs.ours, ElementsAre(7));
  EXPECT_EQ(peers, 0);
  EXPECT_THAT(rounds.values(5, [] { return 3.0; }), ElementsAre(3));
}

TEST(Ratio, SaysHowManyTimesBetterWeAre) {
  EXPECT_DOUBLE_EQ(ratio_of(6, 3, Better::kHigher), 2);
  EXPECT_DOUBLE_EQ(ratio_of(6, 3, Better::kLower), 0.5);
  EXPECT_EQ(ratio_of(6, 0, Better::kHigher), 0);
}

// The machine slows down threefold in the second round: each round's ratio stays, that of the
// medians need not.
TEST(Ratio, OfEachRoundIsFreeOfDrift) {
  const Pairs pairs = {.ours = {8, 3, 9}, .peer = {10, 4, 10}};
  EXPECT_THAT(pairs.ratios(Better::kHigher), ElementsAre(0.8, 0.75, 0.9));
  EXPECT_THAT(pairs.ratios(Better::kLower), ElementsAre(1.25, 4. / 3, 10. / 9));
}

TEST(Median, OfNothingIsNothing) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

}  // namespace
}  // namespace fleet::benchmarks
