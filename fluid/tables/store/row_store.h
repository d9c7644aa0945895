// Rows of bytes by 64-bit key: where they are, and how they are found. What the bytes mean is
// GrowingTable's (growing_table.h).
//
// A key's hash says its bucket, of 4 096. A bucket has its rows one behind the other, in chunks of
// 128, and an index of its own: groups of seven slots, a cache line each (row_index.h). A key
// is looked for in the group that its hash says, then in the next ones, until one is not full.
// Slots have the whole key, so rows have none, and none is read to find another. A row costs its
// bytes and
//   index     64 B / 7 / (0.78 to 0.875): a full index becomes an eighth larger
//   chunks    8 B for 128 rows; room for rows to come: 1/256 of the bucket on average, or two rows
// and nothing is ever copied as a whole: a bucket that grows copies its index and one chunk.
// To find a row of 64 bytes two cache lines are read that no cache has, when the table is large:
// its group and the row; the arrays of chunks stay in caches.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/process/prefetch.h"
#include "fluid/tables/store/buckets.h"
#include "fluid/tables/store/line_memory.h"
#include "fluid/tables/store/row_index.h"

namespace fleet::fluid::tables {

class RowSnapshot;

// Where a row is. Valid until rows are inserted or erased.
struct RowPlace {
  static constexpr uint32_t kNone = IndexGroup::kMostRows;
  uint32_t bucket = 0;
  uint32_t number = kNone;  // in the bucket
  bool found() const { return number != kNone; }
};

// One caller at a time, but: visit(), row(), change() and mark_touched() may be called at once from
// several threads, for rows that differ. Pointers to rows are valid until rows are inserted or
// erased. Throws std::bad_alloc, and is then as before; UsageError when a bucket is full (a million
// rows: 4 thousand million in a table).
class RowStore {
 public:
  static constexpr uint32_t kChunkRows = 128;
  static constexpr uint32_t kNone = RowPlace::kNone;

  // A multiple of 4. `tracks`: whether mark_touched() does anything.
  explicit RowStore(size_t row_bytes, bool tracks = false);
  ~RowStore();
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  size_t row_bytes() const { return row_bytes_; }
  uint64_t size() const { return rows_; }
  uint32_t size_of(uint32_t bucket) const { return buckets_[bucket].rows; }
  // Memory that is in use: rows, room for more, indexes and buckets.
  uint64_t bytes() const {
    return memory_.used() + full_chunks_.used() + buckets_.size() * sizeof(Bucket);
  }
  // Memory that the system gave.
  uint64_t reserved_bytes() const {
    return memory_.reserved() + full_chunks_.reserved() + buckets_.size() * sizeof(Bucket);
  }
  bool has_snapshots() const { return !snapshots_.empty(); }

  RowPlace find(uint64_t key) const;
  std::byte* row(RowPlace place) const { return row_at(buckets_[place.bucket], place.number); }
  // Calls consume(i, row, place) for the keys, in their order; `needed` bytes of the row are then
  // in the cache. Null: there is none.
  template <class Consume>
  void visit(std::span<const uint64_t> keys, size_t needed, const Consume& consume) const;

  // Starts to read what inserting the key reads.
  void prefetch_insert(uint64_t key) const;
  // The row of the key; a new one is zeros, and touched. `made`: it is new.
  RowPlace insert(uint64_t key, bool& made);
  // Before bytes of the row change: snapshots keep those of now.
  void change(RowPlace place) {
    if (!snapshots_.empty()) keep(place.bucket, place.number / kChunkRows);
  }
  // The next snapshot of touched rows has it.
  void mark_touched(RowPlace place) {
    if (!tracks_) return;
    const std::atomic_ref<uint64_t> word(touched_[place.bucket][place.number / 64]);
    const uint64_t bit = uint64_t{1} << (place.number % 64);
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }
  void mark_all_touched();
  uint64_t touched() const;  // rows

  // Erases the rows of the bucket for which gone(key, row) is true; each is asked once.
  template <class Gone>
  uint64_t erase_if(uint32_t bucket, const Gone& gone);
  // each(key, row) for the rows of a bucket, in no order.
  template <class Each>
  void for_each(uint32_t bucket, const Each& each) const;
  // Room for so many rows more in the bucket.
  void reserve(uint32_t bucket, uint32_t more);

 private:
  friend class RowSnapshot;

  struct alignas(32) Bucket {
    const IndexGroup* index = nullptr;
    std::byte** chunks = nullptr;
    uint32_t groups = 0;  // 0: the index is a group without rows that all share
    uint32_t rows = 0;
    uint32_t capacity = 0;  // rows that the chunks have room for; all but the last are full
    uint32_t slots = 0;     // chunks that there is room for
  };
  // Keys on their way through visit(), so many at once in each stage.
  static constexpr size_t kStage = 32;
  struct Stage {
    std::array<uint64_t, kStage> hashes;
    std::array<const IndexGroup*, kStage> groups;
    std::array<RowPlace, kStage> places;
    std::array<std::byte*, kStage> rows;
  };

  std::byte* row_at(const Bucket& bucket, uint32_t number) const {
    return bucket.chunks[number / kChunkRows] + number % kChunkRows * row_bytes_;
  }
  static const IndexGroup* home(const Bucket& bucket, uint64_t hash) {
    return bucket.index + ((hash >> 20 & 0xffffffff) * bucket.groups >> 32);
  }
  void reach_groups(std::span<const uint64_t> keys, Stage& stage) const;
  void reach_rows(size_t count, size_t needed, Stage& stage) const;
  static uint32_t search(const Bucket& bucket, const IndexGroup* group, uint64_t hash);

  template <class Each>
  static void each_slot(const Bucket& bucket, const Each& each) {
    for (uint32_t g = 0; g < bucket.groups; ++g) {
      const IndexGroup& group = bucket.index[g];
      for (uint32_t slot = 0; slot < group.used; ++slot) each(group, slot);
    }
  }
  IndexGroup* new_index(uint32_t groups);
  static void put(IndexGroup* index, uint32_t groups, uint64_t hash, uint32_t number);
  void set_index(Bucket& bucket, const IndexGroup* index, uint32_t groups);
  void grow_index(uint32_t bucket, uint32_t groups);
  void grow_rows(uint32_t bucket, uint32_t capacity);
  void set_slots(uint32_t bucket, uint32_t slots);
  std::byte* take_rows(uint32_t rows);
  void give_rows(std::byte* chunk, uint32_t rows);
  void resize_last(Bucket& bucket, uint32_t capacity);
  void erase_rows(uint32_t bucket, const std::vector<bool>& gone, uint32_t count);
  void move_row(uint32_t bucket, uint32_t from, uint32_t to);
  void shrink_rows(uint32_t bucket);
  void keep(uint32_t bucket, uint32_t chunk);
  size_t words_of(uint32_t slots) const { return size_t{slots} * (kChunkRows / 64); }

  const size_t row_bytes_;
  const bool tracks_;
  uint64_t rows_ = 0;
  // Full chunks stay: apart from what grows, which comes and goes, they leave no holes.
  LineMemory full_chunks_;
  LineMemory memory_;
  std::vector<Bucket> buckets_;
  // By bucket, a bit for each row; empty in stores that do not track.
  std::vector<uint64_t*> touched_;
  std::vector<RowSnapshot*> snapshots_;
};

inline uint32_t RowStore::search(const Bucket& bucket, const IndexGroup* group, uint64_t hash) {
  while (true) {
    const uint32_t number = group->number_of(hash);
    if (number != kNone || !group->full()) return number;
    if (++group == bucket.index + bucket.groups) group = bucket.index;
  }
}

inline void RowStore::reach_groups(std::span<const uint64_t> keys, Stage& stage) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t hash = mix64(keys[i]);
    const IndexGroup* const group = home(buckets_[hash >> 52], hash);
    prefetch(group);
    stage.hashes[i] = hash;
    stage.groups[i] = group;
  }
}

inline void RowStore::reach_rows(size_t count, size_t needed, Stage& stage) const {
  for (size_t i = 0; i < count; ++i) {
    const uint64_t hash = stage.hashes[i];
    const auto b = static_cast<uint32_t>(hash >> 52);
    const uint32_t number = search(buckets_[b], stage.groups[i], hash);
    stage.places[i] = {b, number};
    stage.rows[i] = nullptr;
    if (number == kNone) continue;
    std::byte* const row = row_at(buckets_[b], number);
    stage.rows[i] = row;
    prefetch(row, needed);
  }
}

template <class Consume>
void RowStore::visit(std::span<const uint64_t> keys, size_t needed, const Consume& consume) const {
  // While rows of some keys are used, those of the next ones and the groups of those behind are on
  // their way to the cache: reads of memory never pause.
  std::array<Stage, 3> stages;
  const size_t n = keys.size();
  const auto keys_of = [&](size_t stage) {
    const size_t begin = stage * kStage;
    return begin < n ? keys.subspan(begin, std::min(kStage, n - begin)) : keys.first(0);
  };
  for (size_t s = 0; s * kStage < n + 2 * kStage; ++s) {
    reach_groups(keys_of(s), stages[s % 3]);
    if (s >= 1) reach_rows(keys_of(s - 1).size(), needed, stages[(s - 1) % 3]);
    if (s < 2) continue;
    const Stage& ready = stages[(s - 2) % 3];
    const size_t begin = (s - 2) * kStage;
    const size_t count = keys_of(s - 2).size();
    for (size_t i = 0; i < count; ++i) consume(begin + i, ready.rows[i], ready.places[i]);
  }
}

template <class Each>
void RowStore::for_each(uint32_t bucket, const Each& each) const {
  const Bucket& in = buckets_[bucket];
  each_slot(in, [&](const IndexGroup& group, uint32_t slot) {
    each(unmix64(group.hash(slot, bucket)), row_at(in, group.number(slot)));
  });
}

template <class Gone>
uint64_t RowStore::erase_if(uint32_t bucket, const Gone& gone) {
  const Bucket& in = buckets_[bucket];
  std::vector<bool> erased;
  uint32_t count = 0;
  each_slot(in, [&](const IndexGroup& group, uint32_t slot) {
    const uint32_t number = group.number(slot);
    const std::byte* const row = row_at(in, number);
    if (!gone(unmix64(group.hash(slot, bucket)), row)) return;
    if (count++ == 0) erased.resize(in.rows);
    erased[number] = true;
  });
  if (count > 0) erase_rows(bucket, erased, count);
  return count;
}

}  // namespace fleet::fluid::tables
