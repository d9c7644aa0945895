#include "base/process/tile_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace fleet {
namespace {

class TilePools : public ::testing::TestWithParam<TilePool::Options> {
 protected:
  // How often each of so many tiles was computed.
  std::vector<int> counts(int64_t count) {
    std::vector<std::atomic<int>> tiles(static_cast<size_t>(count));
    pool_.run(count, [&](int64_t i) { ++tiles[static_cast<size_t>(i)]; });
    return {tiles.begin(), tiles.end()};
  }

  TilePool pool_{GetParam()};
};

TEST_P(TilePools, ComputeEachTileOnce) {
  for (int round = 0; round < 200; ++round) {
    for (const int64_t count : {0, 1, 2, 3, 64}) {
      EXPECT_EQ(counts(count), std::vector<int>(static_cast<size_t>(count), 1));
    }
  }
}

TEST_P(TilePools, HaveNoMoreThreadsAtWorkThanAsked) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int round = 0; round < 20; ++round) {
    pool_.run(64, [&](int64_t) {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    });
  }
  EXPECT_LE(threads.size(), static_cast<size_t>(pool_.threads()));
}

TEST_P(TilePools, RunATilesOwnTilesOnItsThread) {
  std::atomic<int> tiles = 0;
  pool_.run(4, [&](int64_t) {
    const std::thread::id outer = std::this_thread::get_id();
    pool_.run(4, [&](int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), outer);
      ++tiles;
    });
  });
  EXPECT_EQ(tiles, 16);
}

TEST_P(TilePools, ServeSeveralCallersAtOnce) {
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  callers.reserve(4);
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) pool_.run(8, [&](int64_t i) { sum += i; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 28);
}

TEST_P(TilePools, ThrowWhatATileThrew) {
  for (int round = 0; round < 20; ++round) {
    try {
      pool_.run(8, [](int64_t i) {
        if (i == 3) throw std::runtime_error("tile 3");
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "tile 3");
    }
    EXPECT_EQ(counts(8), std::vector<int>(8, 1));
  }
}

// A process that fork() made has the pool, and none of its threads.
TEST_P(TilePools, WorkInAForkedProcess) {
  EXPECT_EQ(counts(8), std::vector<int>(8, 1));
  const pid_t child = fork();
  if (child == 0) _exit(counts(8) == std::vector<int>(8, 1) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(counts(8), std::vector<int>(8, 1));
}

TEST_P(TilePools, CutRangesByTheirSize) {
  for (TilePool* pool : {&pool_, static_cast<TilePool*>(nullptr)}) {
    std::mutex mutex;
    std::set<std::pair<int64_t, int64_t>> seen;
    Tiles(pool).ranges(10, 4, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      seen.emplace(begin, end);
    });
    EXPECT_EQ(seen, (std::set<std::pair<int64_t, int64_t>>{{0, 4}, {4, 8}, {8, 10}}));
  }
}

TEST_P(TilePools, CutTilesByWhatAnItemCosts) {
  const Tiles tiles(&pool_);
  EXPECT_EQ(Tiles::items(1), Tiles::elements);
  EXPECT_EQ(Tiles::items(Tiles::elements / 4), 4);
  EXPECT_EQ(Tiles::items(3 * Tiles::elements), 1);
  std::atomic<int64_t> parts = 0;
  tiles.split(10, Tiles::elements / 4, [&](int64_t, int64_t) { ++parts; });
  EXPECT_EQ(parts, 3);
}

TEST_P(TilePools, CutTilesOfMuchTheSameSize) {
  const int64_t cost = Tiles::elements / 32;
  EXPECT_EQ(Tiles::part_size(0, cost), 1);
  EXPECT_EQ(Tiles::part_size(5, cost), 5);
  EXPECT_EQ(Tiles::part_size(33, cost), 33);
  EXPECT_EQ(Tiles::part_size(48, cost), 24);
  EXPECT_EQ(Tiles::part_size(65, cost), 33);
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> seen;
  Tiles(&pool_).split(65, cost, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    seen.emplace(begin, end);
  });
  EXPECT_EQ(seen, (std::set<std::pair<int64_t, int64_t>>{{0, 33}, {33, 65}}));
}

// Two tiles that wait for each other are computed by two threads.
TEST(TilePoolPins, KeepAThreadOnItsCore) {
  cpu_set_t usable;
  ASSERT_EQ(sched_getaffinity(0, sizeof usable, &usable), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(static_cast<size_t>(last), &usable)) --last;
  TilePool pool({.threads = 2, .cores = {last}});
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<int> inside = 0;
  cpu_set_t seen;
  CPU_ZERO(&seen);
  pool.run(2, [&](int64_t) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
    if (std::this_thread::get_id() != caller) sched_getaffinity(0, sizeof seen, &seen);
  });
  EXPECT_EQ(CPU_COUNT(&seen), 1);
  EXPECT_TRUE(CPU_ISSET(static_cast<size_t>(last), &seen));
}

INSTANTIATE_TEST_SUITE_P(Threads, TilePools,
                         ::testing::Values(TilePool::Options{.threads = 1},
                                           TilePool::Options{.threads = 2},
                                           TilePool::Options{.threads = 7, .spins = false},
                                           TilePool::Options{.threads = 3}),
                         [](const auto& param) {
                           return std::to_string(param.param.threads) +
                                  (param.param.spins ? "" : "_asleep");
                         });

}  // namespace
}  // namespace fleet
