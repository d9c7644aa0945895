#include "fluid/data/formats/records.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::data {
namespace {

[[noreturn]] void refuse_slot(const SlotSpec& slot, std::string what, std::string expected,
                              std::string got) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = str_cat("slot '", slot.name, "'"),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = "change the slot's description"});
}

void check_slot(const SlotSpec& slot) {
  if (slot.name.empty()) refuse_slot(slot, "a slot has no name", "a name", "an empty one");
  if (slot.width < 0) {
    refuse_slot(slot, "a slot has a negative width", "0 or more", std::to_string(slot.width));
  }
  if (slot.sequence) return;
  int64_t product = 1;
  for (const int64_t dim : slot.dims) {
    // Also what a shape that is no shape would overflow with.
    if (dim <= 0 || product > (int64_t{1} << 40) / dim) {
      refuse_slot(slot, "a dense slot has dimensions that cannot be", "1 or more each",
                  str_cat("[", join(slot.dims, ", "), "]"));
    }
    product *= dim;
  }
  if (slot.width == 0 || (!slot.dims.empty() && product != slot.width)) {
    refuse_slot(slot, "a dense slot's width is not that of its dimensions",
                str_cat("a width of ", product), std::to_string(slot.width));
  }
}

// Copies one slot's values of all ranges into a tensor.
class Gather {
 public:
  Gather(std::span<const RecordRange> ranges, int64_t records, size_t slot)
      : ranges_(ranges), records_(records), slot_(slot) {}

  Tensor tensor(const SlotSpec& spec) const {
    std::vector<int64_t> offsets;
    if (spec.sequence) offsets = ends(spec);
    Shape shape;
    if (spec.sequence) {
      shape = Shape{offsets.back(), 1};
    } else {
      shape.push_back(records_);
      for (const int64_t dim : spec.dims) shape.push_back(dim);
      if (spec.dims.empty()) shape.push_back(spec.width);
    }
    Tensor out(spec.type == SlotType::kId ? DType::kInt64 : DType::kFloat32, shape);
    std::byte* at = out.raw();
    for (const RecordRange& range : ranges_) at = copy(spec, range, at);
    if (spec.sequence) out.set_lod({std::move(offsets)});
    return out;
  }

 private:
  std::vector<int64_t> ends(const SlotSpec& spec) const {
    std::vector<int64_t> offsets(static_cast<size_t>(records_) + 1);
    int64_t* at = offsets.data();
    int64_t last = 0;
    for (const RecordRange& range : ranges_) {
      const auto before = static_cast<int64_t>(range.batch->begin(slot_, range.begin));
      const int64_t* const end = at + (range.end - range.begin);
      if (spec.width > 0) {
        while (at < end) *++at = last += spec.width;
        continue;
      }
      const uint64_t* own = range.batch->column(slot_).ends.data() + range.begin;
      for (const int64_t first = last; at < end; ++own) {
        *++at = last = first + static_cast<int64_t>(*own) - before;
      }
    }
    return offsets;
  }

  std::byte* copy(const SlotSpec& spec, const RecordRange& range, std::byte* at) const {
    const size_t begin = range.batch->begin(slot_, range.begin);
    const size_t count = range.batch->begin(slot_, range.end) - begin;
    if (count == 0) return at;
    const Column& column = range.batch->column(slot_);
    const bool ids = spec.type == SlotType::kId;
    const void* values = ids ? static_cast<const void*>(column.ids.data() + begin)
                             : static_cast<const void*>(column.floats.data() + begin);
    const size_t bytes = count * (ids ? sizeof(uint64_t) : sizeof(float));
    std::memcpy(at, values, bytes);
    return at + bytes;
  }

  std::span<const RecordRange> ranges_;
  int64_t records_;
  size_t slot_;
};

int64_t count_of(std::span<const RecordRange> ranges) {
  int64_t records = 0;
  for (const RecordRange& range : ranges) {
    const auto& slots = range.batch->slots();
    const auto& first = ranges.front().batch->slots();
    if (slots != first && *slots != *first) {
      throw_error(ErrorCode::kInvalidArgument,
                  {.what = "records with different slots cannot be one batch",
                   .expected = str_cat(first->size(), " slots that are the same in all"),
                   .fix = "read them with the same parser"});
    }
    records += range.end - range.begin;
  }
  if (records > 0) return records;
  throw_error(ErrorCode::kInvalidArgument, {.what = "there are no records to make tensors of",
                                            .expected = "at least one",
                                            .fix = "stop when a reader has no more records"});
}

}  // namespace

SlotSpec SlotSpec::sparse(std::string name, SlotType type) {
  return {.name = std::move(name), .type = type};
}

SlotSpec SlotSpec::dense(std::string name, SlotType type, std::vector<int64_t> dims) {
  SlotSpec slot = {.name = std::move(name), .type = type, .sequence = false};
  int64_t width = 1;
  for (const int64_t dim : dims) {
    width = dim > 0 && width <= (int64_t{1} << 40) / dim ? width * dim : 0;
  }
  slot.width = width;
  slot.dims = std::move(dims);
  return slot;
}

Slots make_slots(std::vector<SlotSpec> slots) {
  std::set<std::string> names;
  for (const SlotSpec& slot : slots) {
    check_slot(slot);
    if (!names.insert(slot.name).second) {
      refuse_slot(slot, "two slots have the same name", "a name of its own for each", slot.name);
    }
  }
  return std::make_shared<const std::vector<SlotSpec>>(std::move(slots));
}

RecordBatch::RecordBatch(Slots slots) : slots_(std::move(slots)), columns_(slots_->size()) {}

void RecordBatch::clear() {
  records_ = 0;
  roll_back();
}

void RecordBatch::roll_back() {
  for (size_t slot = 0; slot < columns_.size(); ++slot) {
    Column& column = columns_[slot];
    if ((*slots_)[slot].width == 0) column.ends.truncate(static_cast<size_t>(records_));
    const size_t values = begin(slot, records_);
    const bool ids = (*slots_)[slot].type == SlotType::kId;
    column.ids.truncate(ids ? values : 0);
    column.floats.truncate(ids ? 0 : values);
  }
}

RecordBatch RecordBatch::borrow(Slots slots, int64_t records, std::vector<Column> columns) {
  RecordBatch batch(std::move(slots));
  batch.records_ = records;
  batch.columns_ = std::move(columns);
  return batch;
}

size_t RecordBatch::begin(size_t slot, int64_t record) const {
  const int64_t width = (*slots_)[slot].width;
  if (width > 0) return static_cast<size_t>(record * width);
  return record == 0 ? 0 : columns_[slot].ends.data()[record - 1];
}

std::span<const uint64_t> RecordBatch::ids(size_t slot, int64_t record) const {
  const size_t first = begin(slot, record);
  return columns_[slot].ids.values().subspan(first, end(slot, record) - first);
}

std::span<const float> RecordBatch::floats(size_t slot, int64_t record) const {
  const size_t first = begin(slot, record);
  return columns_[slot].floats.values().subspan(first, end(slot, record) - first);
}

void RecordBatch::append(const RecordRange& range) {
  if (range.batch->slots_ != slots_ && *range.batch->slots_ != *slots_) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "records with other slots cannot be appended",
                 .expected = str_cat(slots_->size(), " slots that are the same in both"),
                 .fix = "read them with the same parser"});
  }
  for (size_t slot = 0; slot < columns_.size(); ++slot) {
    const Column& from = range.batch->columns_[slot];
    Column& to = columns_[slot];
    const size_t first = range.batch->begin(slot, range.begin);
    const size_t count = range.batch->begin(slot, range.end) - first;
    const size_t before = begin(slot, records_);
    if ((*slots_)[slot].type == SlotType::kId) {
      to.ids.append(from.ids.data() + first, count);
    } else {
      to.floats.append(from.floats.data() + first, count);
    }
    if ((*slots_)[slot].width > 0) continue;
    const auto added = static_cast<size_t>(range.end - range.begin);
    uint64_t* ends = to.ends.room(added);
    for (size_t i = 0; i < added; ++i) {
      ends[i] = from.ends.data()[static_cast<size_t>(range.begin) + i] - first + before;
    }
    to.ends.grown(added);
  }
  records_ += range.end - range.begin;
}

uint64_t RecordBatch::bytes() const {
  uint64_t bytes = 0;
  for (const Column& column : columns_) {
    bytes += column.ids.size() * sizeof(uint64_t) + column.floats.size() * sizeof(float) +
             column.ends.size() * sizeof(uint64_t);
  }
  return bytes;
}

std::vector<Tensor> tensors_of(std::span<const RecordRange> ranges) {
  const int64_t records = count_of(ranges);
  const auto& slots = *ranges.front().batch->slots();
  std::vector<Tensor> tensors;
  for (size_t slot = 0; slot < slots.size(); ++slot) {
    tensors.push_back(Gather(ranges, records, slot).tensor(slots[slot]));
  }
  return tensors;
}

}  // namespace fleet::fluid::data
