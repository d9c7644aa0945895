// Threads that share the tiles of one call.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace fleet {

// Any thread may call it. A call while another one goes on, or from inside a tile, runs its tiles
// on its own thread alone: beside their callers, there are never more than threads() - 1 at work.
// In a child that fork() made there are no threads but the caller.
class TilePool {
 public:
  struct Options {
    // That work at once, the caller's among them.
    int threads = 1;
    // Threads without work look for some for a little while before they sleep. Only where there is
    // a core for each.
    bool spins = true;
    // The core that each thread but the caller runs on; shorter lists leave the others free.
    std::vector<int> cores = {};
  };
  explicit TilePool(Options options);
  ~TilePool();
  TilePool(const TilePool&) = delete;
  TilePool& operator=(const TilePool&) = delete;

  int threads() const { return options_.threads; }

  // Calls tile(i) for each i from 0 to count - 1, in no order, and returns when all are over.
  // Throws what one of them threw, of those the one with the least number; others may be left out
  // then.
  template <class Tile>
  void run(int64_t count, const Tile& tile) {
    run_each(
        count, [](const void* what, int64_t i) { (*static_cast<const Tile*>(what))(i); }, &tile);
  }

 private:
  using Call = void (*)(const void* tile, int64_t i);
  struct Work {
    Call call = nullptr;
    const void* tile = nullptr;
    int64_t count = 0;
  };

  void run_each(int64_t count, Call call, const void* tile);
  static void run_alone(const Work& work);
  void work_on(const Work& work);
  void serve();
  uint32_t wait_for_round(uint32_t seen) const;
  void wait_for_others() const;
  void fail(int64_t i);
  void start();
  void pin(std::thread& thread, size_t core);

  const Options options_;
  std::mutex calling_;
  uint32_t forks_ = 0;  // of the process, when the threads began
  Work work_;
  std::atomic<int64_t> next_ = 0;    // tile
  std::atomic<uint32_t> round_ = 0;  // odd: the threads are to end
  std::atomic<int> at_work_ = 0;     // threads that take part in the round, or that it is over
  std::mutex failing_;               // guards the next two
  int64_t failed_ = INT64_MAX;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

// Who computes the tiles of a kernel: the threads of a pool, or the caller alone. What tiles are
// comes from shapes, never from the number of threads: so the bits are the same for any.
class Tiles {
 public:
  // Of a tile in simple loops over elements, about: work for some ten microseconds, so that handing
  // tiles over costs little, and one of them is as fast as the whole. Only tests change it, before
  // anything is computed: results may depend on it, as on shapes.
  static inline int64_t elements = 32768;

  Tiles() = default;
  // The pool must outlive it; null: there is none.
  explicit Tiles(TilePool* pool) : pool_(pool) {}

  bool parallel() const { return pool_ != nullptr; }
  // Items that make a tile, about, where one is as much work as `cost` elements of a simple loop; 1
  // or more.
  static int64_t items(int64_t cost) {
    return std::max<int64_t>(1, elements / std::max<int64_t>(1, cost));
  }

  // Of n such items: those of each tile but the last. Tiles are of much the same size, so that a
  // few items more than one has are not worth another thread.
  static int64_t part_size(int64_t n, int64_t cost) {
    const int64_t size = items(cost);
    const int64_t count = std::max<int64_t>(1, (n + size / 2) / size);
    return std::max<int64_t>(1, (n + count - 1) / count);
  }

  // As TilePool::run.
  template <class Tile>
  void run(int64_t count, const Tile& tile) const {
    if (pool_ != nullptr && count > 1) return pool_->run(count, tile);
    for (int64_t i = 0; i < count; ++i) tile(i);
  }
  // Calls range(begin, end) for the parts of [0, n) that have `size` items, but for the last one.
  template <class Range>
  void ranges(int64_t n, int64_t size, const Range& range) const {
    run((n + size - 1) / size, [&](int64_t i) { range(i * size, std::min(n, (i + 1) * size)); });
  }
  // The same for parts that are a tile each: of part_size(n, cost) items.
  template <class Range>
  void split(int64_t n, int64_t cost, const Range& range) const {
    ranges(n, part_size(n, cost), range);
  }

 private:
  TilePool* pool_ = nullptr;
};

}  // namespace fleet
