#include "fluid/data/formats/datasets/queue_dataset.h"

#include <mutex>
#include <utility>

namespace fleet::fluid::data {
namespace {

class StreamedBatches final : public DatasetBatches {
 public:
  using Choose = std::vector<Tensor> (*)(std::vector<Tensor>, const std::vector<size_t>&);
  StreamedBatches(std::unique_ptr<RecordReader> reader, int64_t batch_size, int64_t parts,
                  std::vector<size_t> slots, Choose choose)
      : reader_(std::move(reader)),
        batch_size_(batch_size),
        parts_(parts),
        slots_(std::move(slots)),
        choose_(choose) {}

  std::vector<Tensor> next() override {
    RecordBatch batch(reader_->slots());
    {
      const std::lock_guard lock(reading_);
      if (reader_->read(batch, batch_size_) == 0) return {};
      // Too few for each part to have one: the end, unless the reader stopped at an error.
      if (batch.records() < parts_) reader_->read(batch, parts_);
    }
    const RecordRange whole{&batch, 0, batch.records() - batch.records() % parts_};
    if (whole.end == 0) return {};
    return choose_(tensors_of({&whole, 1}), slots_);
  }
  void cancel() override { reader_->cancel(); }
  std::string position() override {
    const std::lock_guard lock(reading_);
    return reader_->position().to_string();
  }
  void seek(const std::string& position) override {
    const std::lock_guard lock(reading_);
    reader_->seek(ReaderPosition::parse(position));
  }
  uint64_t bad_lines() override {
    const std::lock_guard lock(reading_);
    return reader_->bad_lines().count();
  }
  std::vector<BadLine> first_bad_lines() override {
    const std::lock_guard lock(reading_);
    return reader_->bad_lines().first();
  }

 private:
  std::mutex reading_;
  std::unique_ptr<RecordReader> reader_;
  int64_t batch_size_;
  int64_t parts_;
  std::vector<size_t> slots_;
  Choose choose_;
};

}  // namespace

std::unique_ptr<DatasetBatches> QueueDataset::make_batches(int64_t parts) {
  auto records = reader();
  return std::make_unique<StreamedBatches>(std::move(records), batch_size(), parts,
                                           slots_of_variables(*parser()), chosen);
}

}  // namespace fleet::fluid::data
