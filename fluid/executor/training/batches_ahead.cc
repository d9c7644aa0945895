#include <algorithm>
#include <utility>

#include "fluid/executor/shards/shard_feeds_impl.h"
#include "fluid/executor/training/batches_ahead_impl.h"

namespace fleet::fluid {

BatchesAhead::BatchesAhead(std::unique_ptr<data::DatasetBatches> batches,
                           std::vector<std::string> names, size_t ahead)
    : batches_(std::move(batches)),
      names_(std::move(names)),
      ahead_(ahead),
      thread_([this] { read(); }) {}

void BatchesAhead::read() {
  std::exception_ptr failure;
  try {
    for (uint64_t number = 0;; ++number) {
      std::vector<Tensor> tensors = batches_->next();
      if (tensors.empty()) break;
      Batch batch{.number = number,
                  .samples = static_cast<uint64_t>(samples_of(tensors.front())),
                  .feed = {},
                  .position = batches_->position()};
      for (size_t i = 0; i < tensors.size(); ++i) {
        batch.feed.emplace_back(names_[i], std::move(tensors[i]));
      }
      if (!put(std::move(batch))) break;
    }
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  failure_ = failure;
  ended_ = true;
  come_.notify_all();
}

// False when nobody wants more.
bool BatchesAhead::put(Batch batch) {
  Lock lock(mutex_);
  room_.wait(lock, [this] { return stopped_ || held_.size() < ahead_; });
  if (stopped_) return false;
  held_.push_back(std::move(batch));
  come_.notify_all();
  return true;
}

void BatchesAhead::rethrow(Lock& lock) {
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  if (!failure || stopped_) return;
  lock.unlock();
  std::rethrow_exception(failure);
}

std::optional<BatchesAhead::Batch> BatchesAhead::take() {
  Lock lock(mutex_);
  come_.wait(lock, [this] { return stopped_ || ended_ || !held_.empty(); });
  if (held_.empty() || stopped_) {
    rethrow(lock);
    return std::nullopt;
  }
  Batch batch = std::move(held_.front());
  held_.pop_front();
  room_.notify_one();
  return batch;
}

const BatchesAhead::Batch* BatchesAhead::peek() {
  const Lock lock(mutex_);
  return held_.empty() || stopped_ ? nullptr : &held_.front();
}

int BatchesAhead::wait_for(int count) {
  const size_t wanted = std::min(static_cast<size_t>(count), ahead_);
  Lock lock(mutex_);
  come_.wait(lock, [&] { return stopped_ || ended_ || held_.size() >= wanted; });
  if (held_.empty()) rethrow(lock);
  return static_cast<int>(std::min(held_.size(), wanted));
}

void BatchesAhead::end() {
  stop();
  batches_->cancel();
  if (thread_.joinable()) thread_.join();
}

void BatchesAhead::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  room_.notify_all();
  come_.notify_all();
}

}  // namespace fleet::fluid
