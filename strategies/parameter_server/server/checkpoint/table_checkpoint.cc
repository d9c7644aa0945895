#include "strategies/parameter_server/server/checkpoint/table_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "strategies/parameter_server/server/update_pool.h"

namespace fleet::strategies {
namespace {

int64_t rows_in(const ParameterEntry& entry) {
  const uint64_t row_bytes = entry.row_bytes();
  return row_bytes == 0 ? entry.height()
                        : static_cast<int64_t>(entry.bytes_in_origin() / row_bytes);
}

}  // namespace

TableCheckpoint::TableCheckpoint(const ParameterEntry& entry,
                                 std::function<std::filesystem::path()> place, Limits limits)
    : entry_(entry),
      place_(std::move(place)),
      limits_(limits),
      count_(rows_in(entry)),
      row_bytes_(entry.row_bytes()),
      piece_rows_(static_cast<int64_t>(
          std::max<size_t>(1, limits.piece_bytes / std::max<size_t>(1, row_bytes_)))) {}

size_t TableCheckpoint::Kept::bytes() const {
  return has.size() / 8 + rows.capacity() * sizeof(int64_t) + values.capacity();
}

void TableCheckpoint::begin(const std::byte* value) {
  const std::lock_guard lock(mutex_);
  value_ = value;
  readable_ = true;
  begun_.notify_all();
}

void TableCheckpoint::begin(fluid::Tensor value) {
  pinned_ = std::move(value);
  begin(std::as_const(pinned_).raw());
}

void TableCheckpoint::moved(const std::byte* value) {
  const std::lock_guard lock(mutex_);
  value_ = value;
}

// What goes wrong here is the file's trouble, not the update's.
void TableCheckpoint::before_change(const std::vector<int64_t>* rows) {
  const Status status = outcome_of([&] {
    std::unique_lock lock(mutex_);
    if (rows != nullptr) {
      for (const int64_t row : *rows) {
        if (row >= 0 && row < count_) keep(lock, row);
      }
      return;
    }
    while (!over_ && rest_bytes() > limits_.kept_bytes) {
      lock.unlock();
      write_next(false);
      lock.lock();
    }
    for (int64_t row = next_; row < count_; ++row) keep(lock, row);
  });
  if (!status.ok()) end(status);
}

// Where the row need not be kept any more after that, it is written.
void TableCheckpoint::make_room(std::unique_lock<std::mutex>& lock, int64_t row) {
  while (!is_written(row) && kept_bytes_ + row_bytes_ > limits_.kept_bytes) {
    lock.unlock();
    write_next(false);
    lock.lock();
  }
}

void TableCheckpoint::keep(std::unique_lock<std::mutex>& lock, int64_t row) {
  const int64_t piece = row / piece_rows_;
  const auto place = static_cast<size_t>(row % piece_rows_);
  if (is_written(row)) return;
  const auto found = kept_.find(piece);
  if (found != kept_.end() && found->second.has[place]) return;
  make_room(lock, row);
  if (is_written(row)) return;
  Kept& kept = kept_[piece];
  const size_t before = kept.bytes();
  if (kept.has.empty()) kept.has.resize(static_cast<size_t>(piece_rows_));
  const std::byte* from = value_ + static_cast<size_t>(row) * row_bytes_;
  kept.values.insert(kept.values.end(), from, from + row_bytes_);
  kept.rows.push_back(row);
  kept.has[place] = true;
  kept_bytes_ += kept.bytes() - before;
}

bool TableCheckpoint::write_piece() {
  {
    std::unique_lock lock(mutex_);
    begun_.wait(lock, [this] { return readable_ || over_; });
  }
  return write_next(true);
}

bool TableCheckpoint::write_next(bool wait_for_disk) {
  const std::lock_guard writing(writing_);
  bool more = false;
  const Status status = outcome_of([&] { more = write(wait_for_disk); });
  if (!status.ok()) end(status);
  return status.ok() && more;
}

bool TableCheckpoint::write(bool wait_for_disk) {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return false;
  }
  if (!file_) {
    fluid::Shape shape(entry_.shape);
    shape.set(0, count_);
    file_ = std::make_unique<fluid::io::TableRowsWriter>(place_(), entry_.origin_shape.front(),
                                                         entry_.dtype, shape);
  }
  if (wait_for_disk) file_->wait_for_disk();
  if (!write_numbers()) return true;
  if (!take_piece()) return false;
  if (!piece_.empty()) file_->values(piece_);
  if (next_ < count_) return true;
  file_->finish();
  end({});
  return false;
}

// True when all of them are written.
bool TableCheckpoint::write_numbers() {
  const auto most =
      static_cast<int64_t>(std::max<size_t>(1, limits_.piece_bytes / sizeof(int64_t)));
  std::vector<int64_t> numbers(static_cast<size_t>(std::min(most, count_ - numbered_)));
  for (int64_t& number : numbers) {
    number = entry_.first_row() + numbered_++ * entry_.row_stride;
  }
  file_->numbers(numbers);
  return numbered_ == count_;
}

// The next rows as they were; false when nobody wants them any more.
bool TableCheckpoint::take_piece() {
  const std::lock_guard lock(mutex_);
  if (over_) return false;
  const int64_t first = next_;
  const int64_t end = std::min(first + piece_rows_, count_);
  piece_.resize(static_cast<size_t>(end - first) * row_bytes_);
  const auto found = kept_.find(first / piece_rows_);
  if (found != kept_.end()) {
    copy_piece(found->second, first, end);
    kept_bytes_ -= found->second.bytes();
    kept_.erase(found);
  } else if (!piece_.empty()) {
    std::memcpy(piece_.data(), value_ + static_cast<size_t>(first) * row_bytes_, piece_.size());
  }
  next_ = end;
  return true;
}

// Rows that are kept may be changing: they are not read where the table has them.
void TableCheckpoint::copy_piece(const Kept& kept, int64_t first, int64_t end) {
  const std::byte* from = value_ + static_cast<size_t>(first) * row_bytes_;
  const auto count = static_cast<size_t>(end - first);
  for (size_t i = 0; i < count; ++i) {
    if (kept.has[i]) continue;
    std::memcpy(piece_.data() + i * row_bytes_, from + i * row_bytes_, row_bytes_);
  }
  for (size_t i = 0; i < kept.rows.size(); ++i) {
    const auto place = static_cast<size_t>(kept.rows[i] - first);
    std::memcpy(piece_.data() + place * row_bytes_, kept.values.data() + i * row_bytes_,
                row_bytes_);
  }
}

void TableCheckpoint::end(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  over_ = true;
  outcome_ = why;
  kept_.clear();
  kept_bytes_ = 0;
  begun_.notify_all();
}

void TableCheckpoint::drop() {
  end({ErrorCode::kCancelled,
       {.what = "nobody waits for the table's file any more",
        .where = entry_.name,
        .expected = {},
        .got = {},
        .fix = {}}});
}

Status TableCheckpoint::outcome() const {
  const std::lock_guard lock(mutex_);
  return outcome_;
}

size_t TableCheckpoint::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_ + piece_.capacity();
}

}  // namespace fleet::strategies
