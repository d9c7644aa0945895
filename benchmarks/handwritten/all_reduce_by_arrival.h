// An all-reduce whose bits need not be the same in every run: each rank sums one piece of the
// array, to which it adds those of the others when they come. Messages, memory, pieces and rounds
// are those of the ordered one for arrays of at most a piece for each rank
// (transport/collective/reading.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "transport/collective/point_to_point.h"

namespace fleet::benchmarks {

// Used by one thread.
class AllReduceByArrival {
 public:
  // Every rank makes one with the same count, of float32. The ranks can read each other's memory;
  // `peers` must outlive it, and serves nothing else.
  AllReduceByArrival(transport::PointToPoint& peers, size_t count);

  // This rank's array, of which run() makes the sum of all ranks' arrays. All ranks call it. Throws
  // PeerError when one of them is gone.
  float* values() { return reinterpret_cast<float*>(memory_.data()); }
  void run();

 private:
  struct Piece {
    size_t begin;
    size_t count;
  };
  Piece piece(int rank) const;
  // Tells the others `mine`, and calls `each(rank)` when that rank's word is in `theirs_`.
  template <class Each>
  void exchange(uint64_t mine, const Each& each);
  const float* values_of(int rank, Piece piece) const;

  transport::PointToPoint& peers_;
  const size_t count_;
  Buffer memory_;
  uint64_t operations_ = 0;
  std::vector<uint64_t> theirs_;  // by rank
  std::vector<uint64_t> places_;  // of arrays, by rank
};

}  // namespace fleet::benchmarks
