#include "fluid/tables/store/row_store.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/tables/store/row_snapshot.h"

namespace fleet::fluid::tables {
namespace {

// The index of a bucket without rows.
constexpr IndexGroup kEmptyGroup{};

// Groups for so many rows: 49 of 56 slots may be used.
uint32_t groups_for(uint32_t rows) {
  return (8 * rows + 48) / 49;
}

// Rows that a bucket makes room for at a time. Each time the rows of its last chunk are copied: of
// rows that are made, some 20 at most.
uint32_t step_of(uint32_t rows) {
  return std::clamp<uint32_t>(rows / 32, 2, std::max<uint32_t>(4, rows / 128));
}

uint32_t chunks_for(uint32_t rows) {
  return (rows + RowStore::kChunkRows - 1) / RowStore::kChunkRows;
}

}  // namespace

RowStore::RowStore(size_t row_bytes, bool tracks)
    : row_bytes_(row_bytes),
      tracks_(tracks),
      full_chunks_(kChunkRows * row_bytes),
      memory_(std::max<size_t>(kChunkRows * row_bytes, size_t{1} << 19)),
      buckets_(kBuckets),
      touched_(tracks ? kBuckets : 0) {
  for (Bucket& bucket : buckets_) bucket.index = &kEmptyGroup;
}

RowStore::~RowStore() = default;

RowPlace RowStore::find(uint64_t key) const {
  const uint64_t hash = mix64(key);
  const Bucket& bucket = buckets_[hash >> 52];
  return {static_cast<uint32_t>(hash >> 52), search(bucket, home(bucket, hash), hash)};
}

void RowStore::prefetch_insert(uint64_t key) const {
  const uint64_t hash = mix64(key);
  const Bucket& bucket = buckets_[hash >> 52];
  prefetch(home(bucket, hash));
  if (bucket.rows % kChunkRows != 0) prefetch(row_at(bucket, bucket.rows));
}

RowPlace RowStore::insert(uint64_t key, bool& made) {
  const uint64_t hash = mix64(key);
  const auto b = static_cast<uint32_t>(hash >> 52);
  Bucket& bucket = buckets_[b];
  const uint32_t there = search(bucket, home(bucket, hash), hash);
  made = there == kNone;
  if (!made) return {b, there};
  const uint32_t number = bucket.rows;
  if (number == bucket.capacity) grow_rows(b, number + step_of(number));
  if (groups_for(number + 1) > bucket.groups) {
    grow_index(b, std::max(bucket.groups + 1, bucket.groups * 9 / 8));
  }
  if (!snapshots_.empty()) keep(b, number / kChunkRows);
  std::memset(row_at(bucket, number), 0, row_bytes_);
  put(const_cast<IndexGroup*>(bucket.index), bucket.groups, hash, number);
  ++bucket.rows;
  ++rows_;
  mark_touched({b, number});
  return {b, number};
}

IndexGroup* RowStore::new_index(uint32_t groups) {
  if (groups == 0) return nullptr;
  auto* const index = reinterpret_cast<IndexGroup*>(memory_.take(groups * sizeof(IndexGroup)));
  std::memset(static_cast<void*>(index), 0, groups * sizeof(IndexGroup));
  return index;
}

void RowStore::put(IndexGroup* index, uint32_t groups, uint64_t hash, uint32_t number) {
  IndexGroup* group = index + ((hash >> 20 & 0xffffffff) * groups >> 32);
  while (group->full()) group = group + 1 == index + groups ? index : group + 1;
  group->add(hash, number);
}

void RowStore::set_index(Bucket& bucket, const IndexGroup* index, uint32_t groups) {
  if (bucket.groups > 0) {
    memory_.give(reinterpret_cast<std::byte*>(const_cast<IndexGroup*>(bucket.index)),
                 bucket.groups * sizeof(IndexGroup));
  }
  bucket.index = groups > 0 ? index : &kEmptyGroup;
  bucket.groups = groups;
}

void RowStore::grow_index(uint32_t bucket, uint32_t groups) {
  Bucket& in = buckets_[bucket];
  IndexGroup* const index = new_index(groups);
  each_slot(in, [&](const IndexGroup& group, uint32_t slot) {
    put(index, groups, group.hash(slot, bucket), group.number(slot));
  });
  set_index(in, index, groups);
}

void RowStore::set_slots(uint32_t b, uint32_t slots) {
  Bucket& bucket = buckets_[b];
  const uint32_t used = std::min(slots, chunks_for(bucket.capacity));
  const size_t pointer_bytes = slots * sizeof(std::byte*);
  auto* const chunks = reinterpret_cast<std::byte**>(memory_.take(pointer_bytes));
  std::copy_n(bucket.chunks, used, chunks);
  if (tracks_) {
    auto* const touched =
        reinterpret_cast<uint64_t*>(memory_.take(words_of(slots) * sizeof(uint64_t)));
    std::fill_n(touched, words_of(slots), 0);
    std::copy_n(touched_[b], words_of(used), touched);
    memory_.give(reinterpret_cast<std::byte*>(touched_[b]),
                 words_of(bucket.slots) * sizeof(uint64_t));
    touched_[b] = touched;
  }
  memory_.give(reinterpret_cast<std::byte*>(bucket.chunks), bucket.slots * sizeof(std::byte*));
  bucket.chunks = chunks;
  bucket.slots = slots;
}

std::byte* RowStore::take_rows(uint32_t rows) {
  return (rows == kChunkRows ? full_chunks_ : memory_).take(rows * row_bytes_);
}

void RowStore::give_rows(std::byte* chunk, uint32_t rows) {
  (rows == kChunkRows ? full_chunks_ : memory_).give(chunk, rows * row_bytes_);
}

void RowStore::resize_last(Bucket& bucket, uint32_t capacity) {
  const uint32_t last = (bucket.capacity - 1) / kChunkRows;
  const uint32_t begin = last * kChunkRows;
  std::byte* const rows = take_rows(capacity - begin);
  std::memcpy(rows, bucket.chunks[last], (bucket.rows - begin) * row_bytes_);
  give_rows(bucket.chunks[last], bucket.capacity - begin);
  bucket.chunks[last] = rows;
  bucket.capacity = capacity;
}

void RowStore::grow_rows(uint32_t b, uint32_t capacity) {
  Bucket& bucket = buckets_[b];
  if (capacity >= IndexGroup::kMostRows) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a table has too many rows for one server",
                 .where = "a bucket of a growing table",
                 .expected = str_cat("fewer than ", IndexGroup::kMostRows, " rows in each of ",
                                     kBuckets, " buckets"),
                 .got = str_cat(capacity, " rows"),
                 .fix = "use more servers, or evict rows"});
  }
  if (bucket.capacity % kChunkRows != 0) {
    const uint32_t end = (bucket.capacity / kChunkRows + 1) * kChunkRows;
    resize_last(bucket, std::min(end, capacity));
  }
  while (bucket.capacity < capacity) {
    const uint32_t chunk = bucket.capacity / kChunkRows;
    if (chunk == bucket.slots) set_slots(b, chunk + std::max<uint32_t>(8, chunk / 64 * 8));
    const uint32_t more = std::min(kChunkRows, capacity - bucket.capacity);
    bucket.chunks[chunk] = take_rows(more);
    bucket.capacity += more;
  }
}

void RowStore::reserve(uint32_t bucket, uint32_t more) {
  Bucket& in = buckets_[bucket];
  const uint64_t rows = uint64_t{in.rows} + more;
  if (rows > in.capacity) {
    grow_rows(bucket, static_cast<uint32_t>(std::min<uint64_t>(rows, IndexGroup::kMostRows)));
  }
  const uint32_t groups = groups_for(static_cast<uint32_t>(rows));
  if (groups > in.groups) grow_index(bucket, groups);
}

void RowStore::move_row(uint32_t bucket, uint32_t from, uint32_t to) {
  Bucket& in = buckets_[bucket];
  std::memcpy(row_at(in, to), row_at(in, from), row_bytes_);
  if (!tracks_) return;
  const uint64_t touched = touched_[bucket][from / 64] >> (from % 64) & 1;
  uint64_t& word = touched_[bucket][to / 64];
  word = (word & ~(uint64_t{1} << (to % 64))) | touched << (to % 64);
}

// Rows behind the new end fill the places of those before it that go.
void RowStore::erase_rows(uint32_t bucket, const std::vector<bool>& gone, uint32_t count) {
  Bucket& in = buckets_[bucket];
  const uint32_t rows = in.rows - count;
  // What needs memory comes first, so that the bucket stays as it is when there is none.
  std::vector<uint32_t> moved(count, kNone);  // of a row behind the new end: where it goes
  for (RowSnapshot* const snapshot : snapshots_) snapshot->keep_keys(bucket);
  for (uint32_t i = 0; i < in.rows && !snapshots_.empty(); i += 1) {
    if (gone[i] || i >= rows) keep(bucket, i / kChunkRows);
  }
  const uint32_t groups = std::min(in.groups, groups_for(rows) + groups_for(rows) / 16);
  IndexGroup* const index = new_index(groups);

  uint32_t hole = 0;
  for (uint32_t from = rows; from < in.rows; ++from) {
    if (gone[from]) continue;
    while (!gone[hole]) ++hole;
    move_row(bucket, from, hole);
    moved[from - rows] = hole++;
  }
  each_slot(in, [&](const IndexGroup& group, uint32_t slot) {
    const uint32_t number = group.number(slot);
    if (gone[number]) return;
    put(index, groups, group.hash(slot, bucket), number < rows ? number : moved[number - rows]);
  });
  set_index(in, index, groups);
  for (uint32_t i = rows; tracks_ && i < in.rows; ++i) {
    touched_[bucket][i / 64] &= ~(uint64_t{1} << (i % 64));
  }
  in.rows = rows;
  rows_ -= count;
  shrink_rows(bucket);
}

void RowStore::shrink_rows(uint32_t b) {
  Bucket& bucket = buckets_[b];
  const uint32_t chunks = chunks_for(bucket.rows);
  for (uint32_t chunk = chunks_for(bucket.capacity); chunk > chunks; --chunk) {
    const uint32_t begin = (chunk - 1) * kChunkRows;
    give_rows(bucket.chunks[chunk - 1], bucket.capacity - begin);
    bucket.capacity = begin;
  }
  const uint32_t wanted = bucket.rows + step_of(bucket.rows);
  if (bucket.capacity > wanted) resize_last(bucket, wanted);
  if (const uint32_t slots = (chunks + 7) / 8 * 8; slots < bucket.slots) set_slots(b, slots);
}

void RowStore::mark_all_touched() {
  for (uint32_t b = 0; b < touched_.size(); ++b) {
    for (uint32_t i = 0; i < buckets_[b].rows; i += 64) {
      touched_[b][i / 64] = ~uint64_t{0} >> (64 - std::min(64U, buckets_[b].rows - i));
    }
  }
}

uint64_t RowStore::touched() const {
  uint64_t rows = 0;
  for (uint32_t b = 0; b < touched_.size(); ++b) {
    for (uint32_t i = 0; i < buckets_[b].rows; i += 64) {
      rows += static_cast<uint64_t>(std::popcount(touched_[b][i / 64]));
    }
  }
  return rows;
}

void RowStore::keep(uint32_t bucket, uint32_t chunk) {
  for (RowSnapshot* const snapshot : snapshots_) snapshot->keep(bucket, chunk);
}

}  // namespace fleet::fluid::tables
