// Signals that a process counts.
#include "base/process/signal_count.h"

#include <csignal>
#include <gtest/gtest.h>
#include <optional>

namespace fleet {
namespace {

TEST(SignalCount, CountsWhileItLives) {
  std::optional<SignalCount> first(SIGUSR2);
  EXPECT_EQ(first->count(), 0U);
  raise(SIGUSR2);
  {
    const SignalCount second(SIGUSR2);
    raise(SIGUSR2);
    EXPECT_EQ(second.count(), 1U) << "since it was made";
  }
  raise(SIGUSR2);
  EXPECT_EQ(first->count(), 3U);
  first.reset();
  EXPECT_EXIT(raise(SIGUSR2), ::testing::KilledBySignal(SIGUSR2), "");
}

TEST(SignalCount, LeavesTheHandlerOfTheProgram) {
  static int handled = 0;
  const auto before = signal(SIGUSR2, [](int) { ++handled; });
  {
    const SignalCount count(SIGUSR2);
    raise(SIGUSR2);
    EXPECT_EQ(count.count(), 0U);
  }
  EXPECT_EQ(handled, 1);
  signal(SIGUSR2, before);
}

}  // namespace
}  // namespace fleet
