#include "fluid/data/formats/datasets/in_memory_dataset.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/data/formats/file_list.h"

namespace fleet::fluid::data {
namespace {

uint64_t local_seed(uint64_t seed, int worker) {
  return mix64(seed + mix64(static_cast<uint64_t>(worker) + 1));
}

}  // namespace

void InMemoryDataset::read(const std::optional<Share>& share) {
  release_memory();
  const std::unique_ptr<RecordReader> records = reader();
  RecordBlocks blocks;
  uint64_t number = 0;
  while (std::unique_ptr<RecordBatch> block = records->next_block()) {
    // Blocks have room to grow, which those that stay do not need.
    auto own = std::make_unique<RecordBatch>(block->slots());
    if (share) {
      keep_own(*block, number, share->seed, share->worker, share->workers, *own);
    } else {
      own->append({block.get(), 0, block->records()});
    }
    number += static_cast<uint64_t>(block->records());
    if (own->records() > 0) blocks.push_back(std::move(own));
  }
  take(std::move(blocks), *records);
  only_share_ = share.has_value();
}

void InMemoryDataset::take(RecordBlocks blocks, const RecordReader& records) {
  in_use_ = parser();
  blocks_ = std::move(blocks);
  bad_lines_ = records.bad_lines().count();
  first_bad_lines_ = records.bad_lines().first();
}

void InMemoryDataset::order_by(std::optional<uint64_t> seed) {
  std::vector<Place> places;
  for (size_t block = 0; block < blocks_.size(); ++block) {
    for (int64_t i = 0; i < blocks_[block]->records(); ++i) {
      places.push_back({static_cast<uint32_t>(block), static_cast<uint32_t>(i)});
    }
  }
  order_.clear();
  if (seed) {
    order_.reserve(places.size());
    for (const uint64_t i : shuffled(places.size(), *seed)) order_.push_back(places[i]);
  } else {
    order_ = std::move(places);
  }
  shuffled_ = seed.has_value();
}

void InMemoryDataset::load_into_memory() {
  read(share_);
  order_by(share_ ? std::optional(local_seed(share_->seed, share_->worker)) : std::nullopt);
}

void InMemoryDataset::release_memory() {
  blocks_.clear();
  order_.clear();
  order_.shrink_to_fit();
  in_use_ = nullptr;
  shuffled_ = false;
  only_share_ = false;
}

void InMemoryDataset::local_shuffle(uint64_t seed) {
  if (!in_use_) {
    throw_error(ErrorCode::kPrecondition, {.what = "there are no records to shuffle",
                                           .where = "local_shuffle",
                                           .fix = "call load_into_memory first"});
  }
  order_by(seed);
}

InMemoryDataset::Share InMemoryDataset::checked_share(uint64_t seed, int worker, int workers) {
  if (workers >= 1 && worker >= 0 && worker < workers) return {seed, worker, workers};
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "there is no such worker to give records to",
               .where = "global_shuffle",
               .expected = "0 <= worker < workers",
               .got = str_cat("worker ", worker, " of ", workers),
               .fix = "pass the worker's index and the number of workers"});
}

void InMemoryDataset::global_shuffle(uint64_t seed, int worker, int workers) {
  share_ = checked_share(seed, worker, workers);
  if (!in_use_) return;
  if (only_share_) return load_into_memory();
  uint64_t number = 0;
  for (std::unique_ptr<RecordBatch>& block : blocks_) {
    auto own = std::make_unique<RecordBatch>(block->slots());
    keep_own(*block, number, seed, worker, workers, *own);
    number += static_cast<uint64_t>(block->records());
    block = std::move(own);
  }
  only_share_ = true;
  order_by(local_seed(seed, worker));
}

void InMemoryDataset::global_shuffle(uint64_t seed, int worker, int workers,
                                     const RecordExchange& exchange) {
  const Share share = checked_share(seed, worker, workers);
  if (side_by_side() != 1) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "workers exchange the records of files that are read one after the other",
                 .where = "global_shuffle",
                 .expected = "set_side_by_side(1)",
                 .got = std::to_string(side_by_side()),
                 .fix = "leave set_side_by_side out, or the exchange"});
  }
  release_memory();
  const std::unique_ptr<RecordReader> records = reader(split_files(filelist(), worker, workers));
  RecordBlocks own;
  while (std::unique_ptr<RecordBatch> block = records->next_block()) {
    own.push_back(std::move(block));
  }
  take(exchange_records(std::move(own), records->slots(), seed, worker, workers, exchange),
       *records);
  share_ = share;
  only_share_ = true;
  order_by(local_seed(seed, worker));
}

int64_t InMemoryDataset::get_memory_data_size() const {
  return static_cast<int64_t>(order_.size());
}

int64_t InMemoryDataset::get_shuffle_data_size() const {
  return shuffled_ ? get_memory_data_size() : 0;
}

uint64_t InMemoryDataset::memory_bytes() const {
  uint64_t bytes = order_.size() * sizeof(Place);
  for (const auto& block : blocks_) bytes += block->bytes();
  return bytes;
}

class InMemoryDataset::Batches final : public DatasetBatches {
 public:
  Batches(const InMemoryDataset& records, std::vector<size_t> slots, int64_t parts)
      : records_(records),
        slots_(std::move(slots)),
        batch_size_(static_cast<uint64_t>(records.batch_size())),
        parts_(static_cast<uint64_t>(parts)),
        end_(end_from(0)) {}

  std::vector<Tensor> next() override {
    const uint64_t begin = next_.fetch_add(batch_size_);
    const auto& order = records_.order_;
    if (begin >= end_) {
      next_.store(end_);
      return {};
    }
    std::vector<RecordRange> ranges;
    const uint64_t end = std::min(end_, begin + batch_size_);
    for (uint64_t i = begin; i < end; ++i) {
      const RecordBatch* block = records_.blocks_[order[i].block].get();
      const auto record = static_cast<int64_t>(order[i].record);
      if (!ranges.empty() && ranges.back().batch == block && ranges.back().end == record) {
        ++ranges.back().end;
      } else {
        ranges.push_back({block, record, record + 1});
      }
    }
    return chosen(tensors_of(ranges), slots_);
  }
  std::string position() override { return std::to_string(std::min<uint64_t>(next_, end_)); }
  void seek(const std::string& position) override {
    const auto at = parse_int(position);
    const auto size = static_cast<long long>(records_.order_.size());
    if (!at || *at < 0 || *at > size) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "the position is not in this data set",
                   .where = "InMemoryDataset",
                   .expected = str_cat("a number from 0 to ", size),
                   .got = BadLines::excerpt(position),
                   .fix = "load and shuffle the same files with the same seed, or begin anew"});
    }
    next_ = static_cast<uint64_t>(*at);
    end_ = end_from(next_);
  }
  std::optional<uint64_t> records_left() override { return end_ - std::min<uint64_t>(next_, end_); }
  uint64_t bad_lines() override { return records_.bad_lines_; }
  std::vector<BadLine> first_bad_lines() override { return records_.first_bad_lines_; }

 private:
  // Every batch has a multiple of so many records as there are parts.
  uint64_t end_from(uint64_t begin) const {
    return begin + (records_.order_.size() - begin) / parts_ * parts_;
  }

  const InMemoryDataset& records_;
  std::vector<size_t> slots_;
  uint64_t batch_size_;
  uint64_t parts_;
  uint64_t end_;                    // of the records
  std::atomic<uint64_t> next_ = 0;  // record
};

std::unique_ptr<DatasetBatches> InMemoryDataset::make_batches(int64_t parts) {
  if (!in_use_) {
    throw_error(ErrorCode::kPrecondition, {.what = "the records are not in memory",
                                           .where = "InMemoryDataset",
                                           .fix = "call load_into_memory first"});
  }
  return std::make_unique<Batches>(*this, slots_of_variables(*in_use_), parts);
}

}  // namespace fleet::fluid::data
