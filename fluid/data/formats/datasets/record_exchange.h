// How workers give records to each other: as files in a folder that all of them see.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "fluid/data/formats/records.h"

namespace fleet::fluid::data {

// Where, and how workers wait for each other.
struct RecordExchange {
  // On a file system that all workers share, and made where there is none. Files of one exchange
  // are gone at its end, but those of a worker that is killed meanwhile; two at the same time need
  // two folders.
  std::filesystem::path folder;
  // Returns when every worker has called it as often: fleet::barrier_worker. It throws where one is
  // gone.
  std::function<void()> meet;
};

// The worker that a record belongs to after a global shuffle, by its number: from 0 on, in the
// order in which the files are read, bad lines left out.
int worker_of_record(uint64_t seed, uint64_t record, int workers);

// Appends the records that are this worker's, `number` being that of the first record of `from`.
void keep_own(const RecordBatch& from, uint64_t number, uint64_t seed, int worker, int workers,
              RecordBatch& to);

using RecordBlocks = std::vector<std::unique_ptr<RecordBatch>>;

// Of all workers' records those that are this worker's, in the order of their numbers. `own` are
// the records of this worker's files, in the order of reading; the files of worker 0 come before
// those of worker 1, and so on. Every worker calls it. Throws ResourceError where a file cannot be
// written or read, and what `meet` throws.
RecordBlocks exchange_records(RecordBlocks own, const Slots& slots, uint64_t seed, int worker,
                              int workers, const RecordExchange& exchange);

}  // namespace fleet::fluid::data
