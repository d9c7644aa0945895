#include "base/process/tile_pool.h"

#include <chrono>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <utility>

#include "base/strings.h"

namespace fleet {
namespace {

// How long a thread looks for work before it sleeps. Waking it takes as long as a small op, so that
// the gaps between the parallel ops of a small net's step must not put it to sleep.
constexpr std::chrono::microseconds kLooking(500);
constexpr int kLooksOfAClock = 64;

// Whether ready() became true while the caller looked.
template <class Ready>
bool seen_while_looking(const Ready& ready) {
  const auto end = std::chrono::steady_clock::now() + kLooking;
  do {
    for (int look = 0; look < kLooksOfAClock; ++look) {
      if (ready()) return true;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// What at_work_ has when a round is over and the threads that took part are done. While it goes on
// the number is that of those, 0 or more: who comes late stays out, and nobody waits for it.
constexpr int kOver = -(1 << 20);

// Forks that made this process, or the ones before it.
std::atomic<uint32_t>& forks() {
  static std::atomic<uint32_t> count = 0;
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  return count;
}

// The pools whose tiles this thread computes.
thread_local int inside = 0;

// In the round that goes on, which may be a later one than was seen; false: it is over.
bool take_part(std::atomic<int>& at_work) {
  int now = at_work.load(std::memory_order_relaxed);
  while (now >= 0) {
    if (at_work.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

struct Inside {
  Inside() { ++inside; }
  ~Inside() { --inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

}  // namespace

TilePool::TilePool(Options options) : options_(std::move(options)) {}

TilePool::~TilePool() {
  if (threads_.empty()) return;
  if (forks_ != forks().load(std::memory_order_relaxed)) {
    for (std::thread& thread : threads_) thread.detach();  // there is none here
    return;
  }
  round_.fetch_or(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TilePool::start() {
  forks_ = forks().load(std::memory_order_relaxed);
  for (int i = 1; i < options_.threads; ++i) {
    threads_.emplace_back([this] { serve(); });
    pthread_setname_np(threads_.back().native_handle(), str_cat("tiles-", i).c_str());
    if (threads_.size() <= options_.cores.size()) pin(threads_.back(), threads_.size() - 1);
  }
}

// A core that may not be used leaves the thread where the system puts it.
void TilePool::pin(std::thread& thread, size_t core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<size_t>(options_.cores[core]), &cores);
  pthread_setaffinity_np(thread.native_handle(), sizeof cores, &cores);
}

void TilePool::run_alone(const Work& work) {
  for (int64_t i = 0; i < work.count; ++i) work.call(work.tile, i);
}

void TilePool::run_each(int64_t count, Call call, const void* tile) {
  const Work work{call, tile, count};
  if (count <= 1 || options_.threads <= 1 || inside > 0) return run_alone(work);
  const std::unique_lock only(calling_, std::try_to_lock);
  if (!only) return run_alone(work);
  if (threads_.empty()) start();
  if (forks_ != forks().load(std::memory_order_relaxed)) return run_alone(work);
  work_ = work;
  next_.store(0, std::memory_order_relaxed);
  at_work_.store(0, std::memory_order_release);
  round_.fetch_add(2, std::memory_order_release);
  round_.notify_all();
  work_on(work);
  at_work_.fetch_add(kOver, std::memory_order_acq_rel);
  wait_for_others();
  if (failed_ == INT64_MAX) return;
  failed_ = INT64_MAX;
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void TilePool::work_on(const Work& work) {
  const Inside here;
  while (true) {
    const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= work.count) return;
    try {
      work.call(work.tile, i);
    } catch (...) {
      fail(i);
      next_.store(work.count, std::memory_order_relaxed);
    }
  }
}

void TilePool::fail(int64_t i) {
  const std::lock_guard lock(failing_);
  if (i >= failed_) return;
  failed_ = i;
  failure_ = std::current_exception();
}

void TilePool::serve() {
  for (uint32_t seen = 0;;) {
    seen = wait_for_round(seen);
    if (seen % 2 == 1) return;
    if (!take_part(at_work_)) continue;
    work_on(work_);
    if (at_work_.fetch_sub(1, std::memory_order_acq_rel) == kOver + 1) at_work_.notify_one();
  }
}

uint32_t TilePool::wait_for_round(uint32_t seen) const {
  const auto began = [&] { return round_.load(std::memory_order_acquire) != seen; };
  if (!options_.spins || !seen_while_looking(began)) {
    round_.wait(seen, std::memory_order_acquire);
  }
  return round_.load(std::memory_order_acquire);
}

void TilePool::wait_for_others() const {
  const auto over = [&] { return at_work_.load(std::memory_order_acquire) == kOver; };
  if (options_.spins && seen_while_looking(over)) return;
  for (int now = at_work_.load(std::memory_order_acquire); now != kOver;
       now = at_work_.load(std::memory_order_acquire)) {
    at_work_.wait(now, std::memory_order_acquire);
  }
}

}  // namespace fleet
