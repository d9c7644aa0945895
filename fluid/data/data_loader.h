// Feeds, read ahead by threads.
#pragma once

#include <cstdint>
#include <memory>

#include "fluid/data/dataset.h"
#include "fluid/data/sampler.h"

namespace fleet::fluid::data {

struct DataLoaderOptions {
  int64_t batch_size = 1;  // rows of the whole step, over all workers
  bool shuffle = true;
  uint64_t seed = 0;
  LastBatch last = LastBatch::kDrop;
  int worker = 0;
  int workers = 1;
  int shards = 0;    // logical shards of a step; 0: one a worker
  int threads = 1;   // that read ahead; 0: next() reads
  int prefetch = 4;  // feeds that may be ready or being read at once
};

// Endless: epochs follow each other. The feeds come in the order of their positions, whatever the
// number of threads. One thread at a time calls.
class DataLoader {
 public:
  // Throws UsageError that names the field.
  DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options);
  ~DataLoader();
  DataLoader(DataLoader&&) noexcept;

  int64_t steps_per_epoch() const;
  // The feed of the step at position(), which then moves on by one. What Dataset::read throws is
  // thrown here, for the step that it belongs to; the position stays then.
  Feed next();
  // Steps read since the beginning of training; of a checkpoint, all that is needed to go on.
  int64_t position() const;
  void seek(int64_t position);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fleet::fluid::data
