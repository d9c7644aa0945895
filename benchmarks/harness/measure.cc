#include "benchmarks/harness/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

namespace fleet::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double ratio_of(double ours, double theirs, Better better) {
  const double over = better == Better::kHigher ? ours : theirs;
  const double under = better == Better::kHigher ? theirs : ours;
  return under == 0 ? 0 : over / under;
}

std::vector<double> Pairs::ratios(Better better) const {
  std::vector<double> result;
  for (size_t i = 0; i < ours.size() && i < peer.size(); ++i) {
    result.push_back(ratio_of(ours[i], peer[i], better));
  }
  return result;
}

Pairs Rounds::pairs(int rounds, const std::function<double()>& ours,
                    const std::function<double()>& peer) const {
  Pairs pairs;
  if (ours_only()) {
    pairs.ours.push_back(ours());
    return pairs;
  }
  for (int i = 0; i < rounds; ++i) {
    const bool ours_first = i % 2 == 0;
    if (ours_first) pairs.ours.push_back(ours());
    pairs.peer.push_back(peer());
    if (!ours_first) pairs.ours.push_back(ours());
  }
  return pairs;
}

std::vector<double> Rounds::values(int rounds, const std::function<double()>& ours) const {
  std::vector<double> values(ours_only() ? 1 : static_cast<size_t>(rounds));
  for (double& value : values) value = ours();
  return values;
}

double placement_probe_us() {
  constexpr int kRounds = 20000;
  // With other work on the machine a round lasts as long as a time slice.
  constexpr double kMaxSeconds = 0.1;
  alignas(64) std::atomic<int> turn{0};
  std::thread other([&turn] {
    for (int now = 0; now >= 0; now = turn.load(std::memory_order_acquire)) {
      if (now == 1) turn.store(0, std::memory_order_release);
    }
  });
  const auto start = Clock::now();
  int rounds = 0;
  while (rounds < kRounds && (rounds % 8 != 0 || seconds_since(start) < kMaxSeconds)) {
    turn.store(1, std::memory_order_release);
    while (turn.load(std::memory_order_acquire) != 0) {
    }
    ++rounds;
  }
  const double seconds = seconds_since(start);
  turn.store(-1, std::memory_order_release);
  other.join();
  return seconds * 1e6 / rounds;
}

Rate rate_of(double seconds, const std::function<void()>& step) {
  const auto begin = Clock::now();
  int warm = 0;
  while (warm < 3 || (warm < 20 && seconds_since(begin) < seconds / 2)) {
    step();
    ++warm;
  }
  const int batch = seconds_since(begin) / warm < 1e-3 ? 16 : 1;
  const auto start = Clock::now();
  const double processor = processor_seconds();
  int64_t steps = 0;
  double elapsed = 0;
  do {
    for (int i = 0; i < batch; ++i) step();
    steps += batch;
    elapsed = seconds_since(start);
  } while (elapsed < seconds);
  const auto done = static_cast<double>(steps);
  return {.wall = done / elapsed, .processor = done / (processor_seconds() - processor)};
}

}  // namespace fleet::benchmarks
