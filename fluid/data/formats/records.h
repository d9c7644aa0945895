// Records in memory, column by column, and the tensors that they become.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fluid/core/tensor.h"

namespace fleet::fluid::data {

enum class SlotType : uint8_t {
  kId,     // uint64, all bits; tensors have them as int64, as Paddle does
  kFloat,  // float32
};

// What a record has under one name.
struct SlotSpec {
  std::string name;
  SlotType type = SlotType::kId;
  // Values of each record; 0: any number.
  int64_t width = 0;
  // The tensor has sequences, one a record (Paddle's lod_level 1). Without, `width` must be given.
  bool sequence = true;
  // Of one record in a tensor without sequences; their product is `width`. Empty: {width}.
  std::vector<int64_t> dims = {};

  bool operator==(const SlotSpec&) const = default;

  // Any number of values.
  static SlotSpec sparse(std::string name, SlotType type = SlotType::kId);
  // So many values, no sequences.
  static SlotSpec dense(std::string name, SlotType type, std::vector<int64_t> dims);
};

// Shared by batches. Throws UsageError for slots that contradict themselves or have the same name.
using Slots = std::shared_ptr<const std::vector<SlotSpec>>;
Slots make_slots(std::vector<SlotSpec> slots);

// An array that grows without initialising its memory, or a view of memory that lives elsewhere.
template <class T>
class GrowingArray {
 public:
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<const T> values() const { return {data_, size_}; }

  // Memory for at least so many more, at the end; grown() says how many were written.
  T* room(size_t more) {
    if (capacity_ - size_ < more) grow(more);
    return memory_.get() + size_;
  }
  void grown(size_t more) { size_ += more; }
  void push_back(T value) {
    *room(1) = value;
    ++size_;
  }
  void append(const T* values, size_t count) {
    if (count == 0) return;
    std::copy_n(values, count, room(count));
    size_ += count;
  }
  void truncate(size_t size) { size_ = size; }
  // The first element, to be changed; only of own memory.
  T* mutable_data() { return memory_.get(); }
  // Shows other memory; cannot grow.
  void borrow(const T* data, size_t size) {
    memory_.reset();
    data_ = data;
    size_ = size;
    capacity_ = size;
  }
  size_t capacity() const { return capacity_; }

 private:
  void grow(size_t more) {
    const size_t capacity = std::max({size_ + more, 2 * size_, size_t{64}});
    auto larger = std::make_unique_for_overwrite<T[]>(capacity);
    std::copy_n(data_, size_, larger.get());
    memory_ = std::move(larger);
    data_ = memory_.get();
    capacity_ = capacity;
  }

  std::unique_ptr<T[]> memory_;
  const T* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// The values of one slot. The other kind's array is empty.
struct Column {
  GrowingArray<uint64_t> ids;
  GrowingArray<float> floats;
  // Of a slot without a width: where each record's values end.
  GrowingArray<uint64_t> ends;
};

class RecordBatch;

struct RecordRange {
  const RecordBatch* batch = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
};

// Cheap to fill again: clear() keeps the memory. Written by one thread; any may read then.
class RecordBatch {
 public:
  explicit RecordBatch(Slots slots);

  const Slots& slots() const { return slots_; }
  int64_t records() const { return records_; }
  void clear();

  // Parsers write a record's values into its columns (and the ends of those without a width), and
  // count it, or take back what columns have beyond the counted ones.
  Column& column(size_t slot) { return columns_[slot]; }
  const Column& column(size_t slot) const { return columns_[slot]; }
  void count(int64_t records) { records_ += records; }
  void roll_back();

  // A batch that shows records of memory which lives elsewhere, as long as this batch.
  static RecordBatch borrow(Slots slots, int64_t records, std::vector<Column> columns);

  // Of the record's values in their column.
  size_t begin(size_t slot, int64_t record) const;
  size_t end(size_t slot, int64_t record) const { return begin(slot, record + 1); }
  std::span<const uint64_t> ids(size_t slot, int64_t record) const;
  std::span<const float> floats(size_t slot, int64_t record) const;

  void append(const RecordRange& range);
  // Memory that its records take.
  uint64_t bytes() const;

 private:
  Slots slots_;
  std::vector<Column> columns_;
  int64_t records_ = 0;
};

// The records one after the other as tensors, one a slot, in the order of the slots, as Paddle's
// MultiSlotDataFeed feeds them: a slot with sequences is [values, 1] with one LoD level whose
// sequences are the records; another is [records, dims...]. Differs from Paddle in one point: its
// dense tensors keep sequence offsets that do not fit their rows; ours have none. The ranges must
// have the same slots and not be empty altogether (UsageError).
std::vector<Tensor> tensors_of(std::span<const RecordRange> ranges);

}  // namespace fleet::fluid::data
