#include "fluid/data/data_loader.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace fleet::fluid::data {
namespace {

SamplerOptions sampler_options(const Dataset& dataset, const DataLoaderOptions& options) {
  return {.rows = dataset.rows(),
          .batch_size = options.batch_size,
          .shuffle = options.shuffle,
          .seed = options.seed,
          .last = options.last,
          .worker = options.worker,
          .workers = options.workers,
          .shards = options.shards};
}

void check_at_least(std::string_view field, int64_t value, int64_t least) {
  if (value >= least) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "the loader cannot read like this",
                                            .where = str_cat("DataLoaderOptions.", field),
                                            .expected = str_cat("at least ", least),
                                            .got = std::to_string(value),
                                            .fix = "leave it at its default"});
}

}  // namespace

// Positions [consumed_, consumed_ + slots) are being read or ready; slot p % slots holds position
// p. A seek starts a new generation, and what threads still read for an old one is dropped.
class DataLoader::Impl {
 public:
  Impl(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
      : dataset_(std::move(dataset)), sampler_(sampler_options(*dataset_, options)) {
    check_at_least("threads", options.threads, 0);
    check_at_least("prefetch", options.prefetch, 1);
    if (options.threads == 0) return;
    slots_.resize(static_cast<size_t>(options.prefetch));
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this] { read_ahead(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const Sampler& sampler() const { return sampler_; }
  int64_t position() const { return consumed_; }

  Feed next() {
    if (threads_.empty()) {
      Feed feed = read(consumed_);
      ++consumed_;
      return feed;
    }
    std::unique_lock lock(mutex_);
    Slot& slot = slot_of(consumed_);
    ready_.wait(lock, [&] { return slot.feed || slot.error; });
    if (slot.error) {
      const std::exception_ptr error = slot.error;
      restart(consumed_);
      lock.unlock();
      room_.notify_all();
      std::rethrow_exception(error);
    }
    Feed feed = std::move(*slot.feed);
    slot = {};
    ++consumed_;
    lock.unlock();
    room_.notify_one();
    return feed;
  }

  void seek(int64_t position) {
    check_at_least("position", position, 0);
    {
      const std::lock_guard lock(mutex_);
      restart(position);
    }
    room_.notify_all();
  }

 private:
  struct Slot {
    std::optional<Feed> feed;
    std::exception_ptr error;
  };

  Feed read(int64_t position) const {
    const int64_t epoch = position / sampler_.steps_per_epoch();
    const uint64_t seed = mix64(sampler_.options().seed) + static_cast<uint64_t>(epoch);
    return dataset_->read(sampler_.rows_of(position),
                          {.epoch = epoch, .key = RandomKey::of(seed, "DataLoader")});
  }

  Slot& slot_of(int64_t position) { return slots_[static_cast<size_t>(position) % slots_.size()]; }

  void restart(int64_t position) {
    ++generation_;
    consumed_ = claimed_ = position;
    for (Slot& slot : slots_) slot = {};
  }

  void read_ahead() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] {
        return stopping_ || claimed_ < consumed_ + static_cast<int64_t>(slots_.size());
      });
      if (stopping_) return;
      const int64_t position = claimed_++;
      const uint64_t generation = generation_;
      lock.unlock();
      Slot slot;
      try {
        slot.feed = read(position);
      } catch (...) {
        slot.error = std::current_exception();
      }
      lock.lock();
      if (generation != generation_) continue;
      slot_of(position) = std::move(slot);
      ready_.notify_one();
    }
  }

  const std::shared_ptr<const Dataset> dataset_;
  const Sampler sampler_;
  std::mutex mutex_;
  std::condition_variable room_;   // for the threads
  std::condition_variable ready_;  // for next()
  std::vector<Slot> slots_;
  int64_t consumed_ = 0;
  int64_t claimed_ = 0;
  uint64_t generation_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}
DataLoader::~DataLoader() = default;
DataLoader::DataLoader(DataLoader&&) noexcept = default;

int64_t DataLoader::steps_per_epoch() const {
  return impl_->sampler().steps_per_epoch();
}

Feed DataLoader::next() {
  return impl_->next();
}

int64_t DataLoader::position() const {
  return impl_->position();
}

void DataLoader::seek(int64_t position) {
  impl_->seek(position);
}

}  // namespace fleet::fluid::data
