#include <algorithm>
#include <chrono>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "base/error.h"
#include "transport/sim/sim_loop.h"

namespace fleet::transport {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations of tests

TEST(SimWorld, HandlersMayNotWait) {
  SimWorld world(1);
  SimLoop& loop = world.add_loop("a");
  bool refused = false;
  loop.post([&] {
    try {
      loop.run_until([] { return true; }, TimePoint::max());
    } catch (const UsageError&) {
      refused = true;
    }
  });
  world.run_for(1s);
  EXPECT_TRUE(refused);
}

TEST(SimWorld, AStoppedLoopRunsNothingUntilItGoesOn) {
  SimWorld world(1);
  SimLoop& loop = world.add_loop("a");
  std::vector<int> order;
  world.pause(loop);
  loop.post([&] { order.push_back(1); });
  const auto cancelled = loop.call_after(1s, [&] { order.push_back(9); });
  loop.call_after(2s, [&] { order.push_back(2); });
  world.run_for(5s);
  EXPECT_TRUE(order.empty());
  world.resume(loop);
  loop.cancel(cancelled);
  world.run_for(1s);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

TEST(SimWorld, WhatIsCancelledWhileItsLoopStandsDoesNotRun) {
  SimWorld world(1);
  SimLoop& loop = world.add_loop("a");
  std::vector<int> order;
  const auto early = loop.call_after(1ms, [&] { order.push_back(8); });
  const auto late = loop.call_after(2s, [&] { order.push_back(9); });
  world.pause(loop);
  world.run_for(1s);
  loop.cancel(early);
  loop.cancel(late);
  loop.post([&] { order.push_back(1); });
  world.resume(loop);
  world.run_for(5s);
  EXPECT_EQ(order, (std::vector<int>{1}));
}

TEST(SimWorld, EventsRunByTimeAndThenInTheOrderOfTheirPosting) {
  SimWorld world(5);
  SimLoop& loop = world.add_loop("a");
  std::vector<std::pair<TimePoint, int>> wanted;
  std::vector<std::pair<TimePoint, int>> ran;
  int number = 0;
  const auto add = [&](Duration delay) {
    const TimePoint when = world.now() + delay;
    const int own = number++;
    wanted.emplace_back(when, own);
    loop.call_at(when, [&, own] { ran.emplace_back(loop.now(), own); });
  };
  for (int i = 0; i < 3000; ++i) {
    add(std::chrono::microseconds(world.random(i % 3 == 0 ? 5'000'000 : 300)));
    const auto gone = loop.call_after(1ms, [] { FAIL() << "cancelled before"; });
    loop.cancel(gone);
    if (i % 100 == 0) world.run_for(std::chrono::microseconds(world.random(2000)));
  }
  world.run_for(10s);
  std::stable_sort(wanted.begin(), wanted.end());
  EXPECT_EQ(ran, wanted);
}

TEST(SimWorld, TellsWhoseTurnTheLastEventWas) {
  SimWorld world(1);
  EXPECT_EQ(world.last_loop(), nullptr);
  SimLoop& a = world.add_loop("a");
  SimLoop& b = world.add_loop("b");
  std::vector<const SimLoop*> turns;
  a.call_after(2s, [] {});
  b.call_after(1s, [] {});
  world.run_until(
      [&] {
        turns.push_back(world.last_loop());
        return false;
      },
      world.now() + 10s);
  EXPECT_EQ(turns, (std::vector<const SimLoop*>{nullptr, &b, &a}));
}

}  // namespace
}  // namespace fleet::transport
