// Which rows a step reads: a pure function of (seed, position), where the position counts steps
// from the beginning of training, over all epochs. A job that goes on with other workers, or a
// worker that starts again, needs that number only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace fleet::fluid::data {

// A random order of 0 … n-1 without a table: a Feistel network over Philox, walked until it falls
// inside the range (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002).
class Permutation {
 public:
  Permutation(RandomKey key, int64_t n, int64_t epoch);
  int64_t operator()(int64_t index) const;

 private:
  uint64_t encrypt(uint64_t value) const;

  RandomKey key_;
  uint64_t n_;
  uint64_t epoch_;
  int half_bits_;
};

// What happens to the rows at an epoch's end that do not fill a step.
enum class LastBatch : uint8_t {
  kDrop,  // they are left out of this epoch
  kKeep,  // a smaller step
  kFill,  // filled up from the epoch's beginning
};

struct SamplerOptions {
  int64_t rows = 0;        // of the data set
  int64_t batch_size = 1;  // rows of the whole step, over all workers
  bool shuffle = true;     // a new order each epoch
  uint64_t seed = 0;
  LastBatch last = LastBatch::kDrop;
  // Who reads: worker `worker` of `workers` takes its contiguous part of each step's rows, the one
  // that belongs to its logical shards (base/shard_tree.h). 0 shards: one a worker.
  int worker = 0;
  int workers = 1;
  int shards = 0;
};

// Immutable; any thread may call.
class Sampler {
 public:
  // Throws UsageError that names the field.
  explicit Sampler(const SamplerOptions& options);

  const SamplerOptions& options() const { return options_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // This worker's rows of the step. The parts of all workers, in order, are the whole step.
  std::vector<int64_t> rows_of(int64_t position) const;

 private:
  SamplerOptions options_;
  int64_t steps_per_epoch_ = 0;
};

}  // namespace fleet::fluid::data
