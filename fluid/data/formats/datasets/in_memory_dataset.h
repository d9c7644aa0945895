// A data set that is read once, and then shuffled and read from memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "fluid/data/formats/datasets/dataset_base.h"

namespace fleet::fluid::data {

// The worker that a record belongs to after a global shuffle, by its number: from 0 on, in the
// order in which the files are read, bad lines left out.
int worker_of_record(uint64_t seed, uint64_t record, int workers);

class InMemoryDataset final : public DatasetBase {
 public:
  InMemoryDataset() : DatasetBase("InMemoryDataset") {}

  // Reads the files' records, after a global_shuffle() only those of this worker.
  void load_into_memory() override;
  void release_memory() override;
  // The order of the records is drawn from the seed; whatever was shuffled before does not matter.
  void local_shuffle(uint64_t seed = 0) override;
  // Each record goes to worker_of_record(seed, its number, workers), and the worker's records into
  // an order drawn from the seed: which batches a worker has is a function of the files, the seed
  // and the number of workers alone.
  //
  // Workers do not exchange records: EACH HAS THE WHOLE FILE LIST (not its part by split_files; see
  // filelist_hash()), reads all of it and keeps its own. Called before load_into_memory() no others
  // are ever in memory. A second call reads the files anew, because others' records are gone.
  void global_shuffle(uint64_t seed, int worker, int workers) override;

  // Records in memory.
  int64_t get_memory_data_size() const override;
  // Those of them that were shuffled: all, or none.
  int64_t get_shuffle_data_size() const override;
  uint64_t memory_bytes() const;

  // UsageError before load_into_memory().
  std::unique_ptr<DatasetBatches> batches() override;

 private:
  struct Place {
    uint32_t block = 0;
    uint32_t record = 0;
  };
  struct Share {
    uint64_t seed = 0;
    int worker = 0;
    int workers = 1;
  };
  class Batches;

  void read(const std::optional<Share>& share);
  void order_by(std::optional<uint64_t> seed);

  std::shared_ptr<const RecordParser> in_use_;  // what read the blocks; null: nothing is loaded
  std::vector<std::unique_ptr<RecordBatch>> blocks_;
  std::vector<Place> order_;
  std::optional<Share> share_;
  bool only_share_ = false;  // the others' records are not in memory
  bool shuffled_ = false;
  uint64_t bad_lines_ = 0;
};

}  // namespace fleet::fluid::data
