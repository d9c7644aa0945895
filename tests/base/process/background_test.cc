#include "base/process/background.h"

#include <atomic>
#include <gtest/gtest.h>

namespace fleet {
namespace {

using namespace std::chrono_literals;  // NOLINT

TEST(BackgroundThread, WorkIsOverWhenItHasFinished) {
  const auto background = make_background_thread();
  int runs = 0;
  for (int i = 0; i < 3; ++i) background->start([&] { ++runs; });
  background->finish();
  EXPECT_EQ(runs, 3);
  background->finish();
}

TEST(BackgroundThread, WorkThatRestsIsToldToEnd) {
  auto background = make_background_thread();
  bool ended = false;
  background->start([&ended, &self = *background] {
    while (self.rest(1ms)) {
    }
    ended = !self.rest(1h);
  });
  background.reset();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace fleet
