#include "strategies/parameter_server/protocol/row_window.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/hash.h"

namespace fleet::strategies {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RowWindow window_of(uint32_t slices, uint32_t contributors, uint64_t bytes) {
  RowWindow window(std::vector<bool>(slices, true), contributors, bytes);
  window.begin(std::vector<bool>(contributors, true));
  return window;
}

TEST(RowWindow, GivesEachContributorAShareOfAStepWithoutAsking) {
  RowWindow window = window_of(2, 2, 400);
  EXPECT_EQ(window.free_bytes(), 100U);
  EXPECT_TRUE(window.take_free({0, 0}, 60));
  EXPECT_FALSE(window.take_free({1, 0}, 41));
  EXPECT_TRUE(window.take_free({1, 0}, 40));
  EXPECT_TRUE(window.take_free({1, 1}, 100)) << "another contributor's share";
  EXPECT_TRUE(window.is_open({1, 1}));
  window.begin({true, true});
  EXPECT_TRUE(window.unknown({1, 1}));
  EXPECT_TRUE(window.take_free({0, 0}, 100)) << "another step";
}

TEST(RowWindow, LetsInByOrderWhatItHasRoomFor) {
  RowWindow window = window_of(2, 3, 400);
  window.ask({1, 0}, 150);
  window.ask({0, 2}, 150);
  window.ask({0, 1}, 50);
  EXPECT_THAT(window.let_in(), ElementsAre(RowGradient{0, 1}, RowGradient{0, 2}, RowGradient{1, 0}))
      << "the last is in its turn";
  EXPECT_THAT(window.let_in(), IsEmpty());
  window.ask({1, 0}, 150);
  EXPECT_THAT(window.let_in(), IsEmpty()) << "it is open";
}

TEST(RowWindow, KeepsTheRoomOfWhatCameBeforeItsTurn) {
  RowWindow window = window_of(1, 4, 400);
  window.ask({0, 1}, 200);
  EXPECT_THAT(window.let_in(), ElementsAre(RowGradient{0, 1}));
  window.end({0, 1});
  window.ask({0, 2}, 10);
  EXPECT_THAT(window.let_in(), IsEmpty());
  window.end({0, 0});  // it has none
  EXPECT_THAT(window.let_in(), ElementsAre(RowGradient{0, 2}));
}

TEST(RowWindow, LetsInWhoseTurnItIsWhateverItsSizeAndOneAtATime) {
  RowWindow window = window_of(2, 2, 400);
  window.ask({0, 0}, 1000);
  window.ask({1, 0}, 1000);
  EXPECT_THAT(window.let_in(), ElementsAre(RowGradient{0, 0}));
  EXPECT_TRUE(window.asking({1, 0}));
  window.ask({0, 1}, 1000);
  EXPECT_THAT(window.let_in(), IsEmpty());
  window.end({0, 0});
  EXPECT_THAT(window.let_in(), ElementsAre(RowGradient{0, 1}));
  window.end({0, 1});
  EXPECT_THAT(window.let_in(), ElementsAre(RowGradient{1, 0}));
}

TEST(RowWindow, ForgetsWhoAskedAndHasLeft) {
  RowWindow window = window_of(1, 2, 0);
  window.ask({0, 1}, 8);
  EXPECT_THAT(window.let_in(), IsEmpty());
  window.end({0, 1});
  window.end({0, 0});
  EXPECT_THAT(window.let_in(), IsEmpty());
  window.begin({false, true});
  window.ask({0, 1}, 8);
  EXPECT_THAT(window.let_in(), ElementsAre(RowGradient{0, 1})) << "contributor 0 is not awaited";
}

// Whatever sizes there are and in whatever order they come: everybody gets in, and what lies there
// before its turn never takes more than half of the window.
TEST(RowWindow, NeverStandsStill) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    uint64_t state = seed;
    const auto draw = [&state](uint64_t below) { return (state = mix64(state + 1)) % below; };
    const auto slices = static_cast<uint32_t>(1 + draw(3));
    const auto contributors = static_cast<uint32_t>(1 + draw(9));
    const uint64_t bytes = draw(4) == 0 ? 0 : draw(600);
    RowWindow window = window_of(slices, contributors, bytes);
    std::vector<RowGradient> to_come;
    for (uint32_t s = 0; s < slices; ++s) {
      for (uint32_t c = 0; c < contributors; ++c) to_come.push_back({s, c});
    }
    std::vector<RowGradient> open;
    size_t ended = 0;
    const size_t all = to_come.size();
    while (ended < all) {
      for (const RowGradient& gradient : window.let_in()) open.push_back(gradient);
      ASSERT_FALSE(to_come.empty() && open.empty()) << "seed " << seed << ": it stands still";
      if (!to_come.empty() && (open.empty() || draw(2) == 0)) {
        const size_t at = draw(to_come.size());
        const RowGradient gradient = to_come[at];
        to_come.erase(to_come.begin() + static_cast<std::ptrdiff_t>(at));
        const uint64_t size = draw(100);
        if (draw(8) == 0) {
          window.end(gradient);
          ++ended;
        } else if (draw(2) == 0 && window.take_free(gradient, size)) {
          open.push_back(gradient);
        } else {
          window.ask(gradient, size);
        }
      } else if (!open.empty()) {
        const size_t at = draw(open.size());
        window.end(open[at]);
        ++ended;
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
}

}  // namespace
}  // namespace fleet::strategies
