// A data set that is read once, and then shuffled and read from memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "fluid/data/formats/datasets/dataset_base.h"

namespace fleet::fluid::data {

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
  // EACH WORKER HAS THE WHOLE FILE LIST (not its part by split_files; see filelist_hash()).
  //
  // Without an exchange each worker reads all of it and keeps its own. Called before
  // load_into_memory() no others are ever in memory. A second call reads the files anew, because
  // others' records are gone.
  //
  // With one each worker reads its part by split_files, and workers give each other the records
  // that are not theirs: the same result, for a part of the reading. It needs no
  // load_into_memory(), reads the files anew each time, and does not go with set_side_by_side(). A
  // worker's records, its own and those it gives away, must fit its memory.
  void global_shuffle(uint64_t seed, int worker, int workers) override;
  void global_shuffle(uint64_t seed, int worker, int workers,
                      const RecordExchange& exchange) override;

  // Records in memory.
  int64_t get_memory_data_size() const override;
  // Those of them that were shuffled: all, or none.
  int64_t get_shuffle_data_size() const override;
  uint64_t memory_bytes() const;

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

  // UsageError before load_into_memory().
  std::unique_ptr<DatasetBatches> make_batches(int64_t parts) override;
  static Share checked_share(uint64_t seed, int worker, int workers);
  void read(const std::optional<Share>& share);
  void take(RecordBlocks blocks, const RecordReader& records);
  void order_by(std::optional<uint64_t> seed);

  std::shared_ptr<const RecordParser> in_use_;  // what read the blocks; null: nothing is loaded
  RecordBlocks blocks_;
  std::vector<Place> order_;
  std::optional<Share> share_;
  bool only_share_ = false;  // the others' records are not in memory
  bool shuffled_ = false;
  uint64_t bad_lines_ = 0;
  std::vector<BadLine> first_bad_lines_;
};

}  // namespace fleet::fluid::data
