// Rates, medians and rounds in which ours and the peer take turns.
#pragma once

#include <functional>
#include <vector>

namespace fleet::benchmarks {

// Whether larger values (rates) or smaller ones (times, bytes) are better.
enum class Better { kHigher, kLower };

// 0 of nothing.
double median(std::vector<double> values);

// How many times better `ours` is: ours/theirs for rates, theirs/ours for times and bytes. 0 when
// that has no meaning.
double ratio_of(double ours, double theirs, Better better);

// What both sides reached, round by round; a round of ours and one of the peer lie side by side.
struct Pairs {
  std::vector<double> ours;
  std::vector<double> peer;

  double our_median() const { return median(ours); }
  double peer_median() const { return median(peer); }
  // Of each round.
  std::vector<double> ratios(Better better) const;
};

// How a row measures. Everything that a row repeats goes through here.
class Rounds {
 public:
  enum class Side {
    kBoth,
    kOurs,  // once, and no peer: another tree is the peer
  };
  explicit Rounds(Side side = Side::kBoth, bool full_size = false)
      : side_(side), full_size_(full_size) {}

  // Whether rows that take minutes or much memory are measured at their full size (--full).
  bool full_size() const { return full_size_; }
  bool ours_only() const { return side_ == Side::kOurs; }
  // Measures both in each round. Which one goes first alternates, so that neither what the first
  // leaves behind nor a drift of the machine's speed favours a side.
  Pairs pairs(int rounds, const std::function<double()>& ours,
              const std::function<double()>& peer) const;
  std::vector<double> values(int rounds, const std::function<double()>& ours) const;

 private:
  Side side_;
  bool full_size_;
};

// Microseconds of a round trip of one cache line between two threads: about 0.1 or 0.45 here,
// depending on where the host puts the processors.
double placement_probe_us();

// Calls per second, and per second of this process's time on processors: what other processes do
// changes the first much more.
struct Rate {
  double wall = 0;
  double processor = 0;
};
// Of `step`, run for about `seconds` after a warm-up.
Rate rate_of(double seconds, const std::function<void()>& step);

}  // namespace fleet::benchmarks
