#include "base/post_queue.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace fleet {
namespace {

// Runs what was posted last first.
class UnorderedLoop final : public Loop {
 public:
  TimePoint now() const override { return {}; }
  void post(Handler handler) override {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(handler));
  }
  TimerId call_at(TimePoint, Handler) override { return 0; }
  void cancel(TimerId) override {}

  // False when there was nothing to run.
  bool run_one() {
    Handler next;
    {
      const std::lock_guard lock(mutex_);
      if (posted_.empty()) return false;
      next = std::move(posted_.back());
      posted_.pop_back();
    }
    next();
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<Handler> posted_;
};

TEST(PostQueue, KeepsTheOrderWhereTheLoopDoesNot) {
  UnorderedLoop loop;
  PostQueue queue(loop);
  std::vector<int> ran;
  for (int i = 0; i < 3; ++i) {
    queue.post([&, i] {
      ran.push_back(i);
      if (i == 1) queue.post([&] { ran.push_back(10); });
    });
  }
  while (loop.run_one()) {
  }
  EXPECT_THAT(ran, ::testing::ElementsAre(0, 1, 2, 10));
}

TEST(PostQueue, KeepsTheOrderOfEveryThread) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 1000;
  UnorderedLoop loop;
  PostQueue queue(loop);
  std::vector<std::vector<int>> ran(kThreads);
  std::vector<std::thread> threads;
  for (size_t k = 0; k < kThreads; ++k) {
    threads.emplace_back([&, k] {
      for (int i = 0; i < kCalls; ++i) queue.post([&, k, i] { ran[k].push_back(i); });
    });
  }
  size_t done = 0;
  while (done < size_t{kThreads} * kCalls) {
    loop.run_one();
    done = 0;
    for (const auto& calls : ran) done += calls.size();
  }
  for (auto& thread : threads) thread.join();
  for (const auto& calls : ran) {
    EXPECT_TRUE(std::is_sorted(calls.begin(), calls.end()));
    EXPECT_EQ(calls.size(), size_t{kCalls});
  }
}

}  // namespace
}  // namespace fleet
