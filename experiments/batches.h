// The mini-batches of one run, in the order in which gradients are made from them: of all workers
// together, or of one that has rows of its own.
#pragma once

#include <cstdint>
#include <vector>

#include "fluid/data/sampler.h"

namespace fleet::experiments {

class Batches {
 public:
  Batches(int64_t rows, int64_t batch_size, uint64_t seed)
      : Batches(rows, batch_size, seed, 0, 1) {}
  // Rows owner, owner + owners, …
  Batches(int64_t rows, int64_t batch_size, uint64_t seed, int64_t owner, int64_t owners)
      : sampler_({.rows = (rows - owner + owners - 1) / owners,
                  .batch_size = batch_size,
                  .seed = seed + static_cast<uint64_t>(owner) * 1000003}),
        owner_(owner),
        owners_(owners) {}

  int64_t per_epoch() const { return sampler_.steps_per_epoch(); }
  std::vector<int64_t> next() {
    std::vector<int64_t> rows = sampler_.rows_of(position_++);
    for (int64_t& row : rows) row = row * owners_ + owner_;
    return rows;
  }

 private:
  fluid::data::Sampler sampler_;
  int64_t owner_;
  int64_t owners_;
  int64_t position_ = 0;
};

// A learning rate that is divided by 10 at half and at three quarters of the run.
inline double stepped_rate(double rate, int64_t done, int64_t total) {
  if (4 * done >= 3 * total) return rate / 100;
  return 2 * done >= total ? rate / 10 : rate;
}

}  // namespace fleet::experiments
