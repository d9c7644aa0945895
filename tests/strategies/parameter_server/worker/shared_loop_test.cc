// Who drives a loop that a thread of its own shares with threads that come and go.
#include "strategies/parameter_server/worker/shared_loop.h"

#include <future>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

namespace fleet::strategies {
namespace {

// Comes again and again, as a trainer of short steps does, until it finds the loop free.
void run_soon(SharedLoop& loop, const std::function<void()>& work) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!loop.try_run(work)) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    loop.loop().post([] {});
    std::this_thread::yield();
  }
}

std::thread::id thread_of_next_handler(SharedLoop& loop) {
  std::promise<std::thread::id> promise;
  loop.loop().post([&promise] { promise.set_value(std::this_thread::get_id()); });
  return promise.get_future().get();
}

TEST(SharedLoop, WhoComesOftenRunsWhatIsReadyAndThenItsOwnWork) {
  SharedLoop loop("shared");
  std::vector<std::string> seen;
  std::thread::id worker;
  run_soon(loop, [&] { loop.loop().post([&seen] { seen.push_back("ready"); }); });
  run_soon(loop, [&] {
    seen.push_back("work");
    worker = std::this_thread::get_id();
  });
  EXPECT_EQ(seen, (std::vector<std::string>{"ready", "work"}));
  EXPECT_EQ(worker, std::this_thread::get_id());
}

TEST(SharedLoop, ItsOwnThreadDrivesWhenNobodyComes) {
  SharedLoop loop("shared");
  EXPECT_NE(thread_of_next_handler(loop), std::this_thread::get_id());
  run_soon(loop, [] {});
  EXPECT_NE(thread_of_next_handler(loop), std::this_thread::get_id());
}

TEST(SharedLoop, WhoWaitsDrivesUntilItsConditionHolds) {
  SharedLoop loop("shared");
  std::thread::id handler;
  bool done = false;
  run_soon(loop, [&] {
    loop.loop().call_after(std::chrono::milliseconds(1), [&] {
      handler = std::this_thread::get_id();
      done = true;
    });
  });
  // Its own thread may have taken the loop again, and runs the handler then.
  if (loop.try_drive_until([&done] { return done; })) {
    EXPECT_EQ(handler, std::this_thread::get_id());
    return;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (bool seen = false; !seen; loop.on_loop([&] { seen = done; })) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
  }
  EXPECT_NE(handler, std::this_thread::get_id());
}

TEST(SharedLoop, HandlersOfManyThreadsRunOneAtATime) {
  constexpr int kThreads = 3;
  constexpr int kEach = 2000;
  SharedLoop loop("shared");
  int counted = 0;  // unguarded: handlers exclude each other
  const auto count = [&counted] { ++counted; };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) {
        if (i % 50 == 0) std::this_thread::sleep_for(SharedLoop::kPatience);
        if (i % 3 == 0) {
          loop.on_loop(count);
        } else if (!loop.try_run(count)) {
          loop.loop().post(count);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  int seen = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (seen < kThreads * kEach && std::chrono::steady_clock::now() < end) {
    loop.on_loop([&] { seen = counted; });
  }
  EXPECT_EQ(seen, kThreads * kEach);
}

TEST(SharedLoop, WhatWorkThrowsReachesOnLoopAndNotTheOthers) {
  SharedLoop loop("shared");
  const auto fail = [] { throw std::runtime_error("by design"); };
  EXPECT_THROW(loop.on_loop(fail), std::runtime_error);
  run_soon(loop, fail);  // logged
  EXPECT_NE(thread_of_next_handler(loop), std::thread::id());
}

TEST(SharedLoop, AfterItsEndWorkRunsOnTheCallingThreadAndNobodyWaits) {
  SharedLoop loop("shared");
  loop.end();
  std::thread::id seen;
  loop.on_loop([&seen] { seen = std::this_thread::get_id(); });
  EXPECT_EQ(seen, std::this_thread::get_id());
  EXPECT_FALSE(loop.try_drive_until([] { return false; }));
}

// The end reaches a thread that drives and waits for what will never come.
TEST(SharedLoop, ItsEndEndsADriversWait) {
  SharedLoop loop("shared");
  std::promise<void> driving;
  std::thread driver([&] {
    run_soon(loop, [] {});
    driving.set_value();
    loop.try_drive_until([] { return false; });
  });
  driving.get_future().get();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  loop.end();
  driver.join();
}

}  // namespace
}  // namespace fleet::strategies
